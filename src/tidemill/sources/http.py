"""Headers, addresses in messages, and refusals of servers: shared by the sources over HTTP."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from tidemill.kernel.author_errors import Fail
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import DefinitionError
from tidemill.sources.interface import Disconnected

Headers = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers of a request, or a function, async or not, that returns them: it is called before each connection."""

REFUSED_STATUSES = (401, 403)


def check_url(source: str, url: str, schemes: tuple[str, ...]) -> None:
    """Raise DefinitionError if an address does not begin with one of these schemes, or names no host."""
    parts = urlsplit(url)
    if parts.scheme not in schemes or not parts.hostname:
        known = " or ".join(f"{scheme}://" for scheme in schemes)
        message = f"'{public_address(url)}' is not an address: it begins with {known}, followed by a host"
        raise DefinitionError.single(source, message)


def public_address(url: str) -> str:
    """Return an address without the parts that may hold a secret: user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def resolve_headers(headers: Headers | None) -> Mapping[str, str]:
    """Return the headers for a new connection."""
    found = headers() if callable(headers) else headers or {}
    return await found if inspect.isawaitable(found) else found


def refusal(url: str, status: int, pause: str | None, headers: Headers | None, clock: Clock) -> Exception:
    """Return the error for an HTTP status that is not a success; `pause` is the header Retry-After."""
    message = f"{public_address(url)} answers with status {status}"
    if status in REFUSED_STATUSES and not callable(headers):  # a function may return another token next time
        return Fail(f"{message}; correct the credentials in headers=")
    return Disconnected(message, retry_after=parse_retry_after(pause, clock))


def parse_retry_after(value: str | None, clock: Clock) -> float | None:
    """Return the seconds of a Retry-After header, which has a number or a date; None if it has neither."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - clock.now()).total_seconds())
    except (TypeError, ValueError):  # not a date, or one without a time zone
        return None
