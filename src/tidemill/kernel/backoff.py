"""Delays before the next try: of supervised components, and of author code that failed."""

import random
from math import inf
from typing import Self

import msgspec

from tidemill.kernel.durations import Duration, parse_duration
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.limits import MAX_INTEGER

DEFAULT_MAX_DELAY = 300.0  # seconds between two tries of author code, unless the first delay is longer


class Backoff(msgspec.Struct, frozen=True):
    """Doubling delays with a ceiling, without jitter: 1, 2, 4, ... seconds."""

    initial_delay: float = 1.0
    max_delay: float = 60.0

    def delay(self, failures: int) -> float:
        """Return the delay after this many failures in a row, counted from 1."""
        return min(self.max_delay, self.initial_delay * 2.0 ** min(failures - 1, 62))


class Retry:
    """The retry policy of author code: how often, after which delays and for which errors it is retried.

    `Retry(3)` means three more tries after the first. `max_delay` is 5 minutes, or `delay` if that is longer; one that
    you pass holds, even below `delay`. `jitter` is a fraction of the delay, both ways.
    """

    __slots__ = ("backoff", "delay", "jitter", "max_delay", "on", "times")

    def __init__(
        self,
        times: int,
        *,
        delay: Duration = "1s",
        backoff: float = 2.0,
        max_delay: Duration | None = None,
        jitter: float = 0.0,
        on: tuple[type[BaseException], ...] = (Exception,),
    ) -> None:
        if type(times) is not int or not 0 <= times < MAX_INTEGER:
            message = f"the first argument counts further tries, from 0 to {MAX_INTEGER - 1}, not {times!r}"
            raise DefinitionError.single("Retry", f"{message}: Retry(3) tries four times in all")
        if not (_is_number(backoff) and 1.0 <= backoff < inf):
            raise DefinitionError.single("Retry", f"backoff= multiplies the delay, by at least 1.0, not {backoff!r}")
        if not (_is_number(jitter) and 0.0 <= jitter <= 1.0):
            message = f"jitter= is a fraction of the delay, between 0.0 and 1.0, not {jitter!r}"
            raise DefinitionError.single("Retry", message)
        self.times = times
        self.delay = _parse_delay("delay", delay)
        self.backoff = backoff
        default_limit = max(DEFAULT_MAX_DELAY, self.delay)
        self.max_delay = default_limit if max_delay is None else _parse_delay("max_delay", max_delay)
        self.jitter = jitter
        self.on = tuple(on) if isinstance(on, list | tuple | set) else (on,)
        if not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in self.on):
            raise DefinitionError.single("Retry", f"on= takes classes of errors, such as ConnectionError, not {on!r}")

    def allows(self, attempts: int, error: BaseException) -> bool:
        """Return whether another try may follow after `attempts` tries ended with `error`."""
        return attempts <= self.times and isinstance(error, self.on)

    def delay_after(self, attempts: int, rng: random.Random | None = None) -> float:
        """Return the seconds to wait after `attempts` tries, counted from 1."""
        try:
            seconds = min(self.max_delay, self.delay * self.backoff ** (attempts - 1))
        except OverflowError:
            seconds = self.max_delay
        if self.jitter and rng is not None:
            seconds *= 1.0 + self.jitter * rng.uniform(-1.0, 1.0)
        return seconds

    def __repr__(self) -> str:
        return f"Retry({self.times}, delay={self.delay}, backoff={self.backoff}, max_delay={self.max_delay})"


class RetryNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """A retry policy without its filter of errors, which only the author's code has; times are seconds."""

    times: int
    delay: float
    backoff: float
    max_delay: float
    jitter: float

    @classmethod
    def of_policy(cls, retry: Retry) -> Self:
        """Return the numbers of a policy."""
        return msgspec.convert(retry, cls, from_attributes=True)

    def to_policy(self) -> Retry:
        """Return a policy with these numbers, which retries after any error."""
        return Retry(self.times, delay=self.delay, backoff=self.backoff, max_delay=self.max_delay, jitter=self.jitter)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parse_delay(option: str, value: Duration) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise DefinitionError.single("Retry", f"{option}: {error}") from error
