"""Settings: read once, frozen, passed down. Keywords win over the environment, which wins over a file."""

import os
from collections.abc import Mapping
from math import isclose
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import force_setattr

from tidemill.kernel.addresses import without_password
from tidemill.kernel.durations import parse, parse_positive, written
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.storable import LARGEST, is_name
from tidemill.kernel.suggestions import did_you_mean

PREFIX = "TIDEMILL_"
_MAY_BE_ZERO = frozenset(
    ["run_orphan_after", "backoff_base", "backoff_max", "success_reset", "unload_timeout", "retention"]
)
"""Durations of which none at all makes sense. The others are waited for in a loop, which would spin."""
_PATHS = frozenset(["packages", "trusted_keys"])
"""They mean what they meant when they were read, wherever author code moves the process to."""
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_EDITIONS: dict[str, dict[str, int]] = {"lite": {}, "pro": {"dispatch_workers": 16, "dispatch_queue": 256}}


_AT_LEAST_ONE = frozenset(["dispatch_workers", "dispatch_queue", "reap_limit"])
"""Numbers of which none at all would leave something undone for ever, without a word."""
_BEATS = 3
"""How many heartbeats a lease lasts for, at least: two of them may be late, or lost."""


class _ByEdition(int):
    """A default that an edition may change; a number that somebody gave is a plain int."""


class _Fitting(float):
    """A default that is less if something else is shorter; seconds that somebody gave are a plain float, or a text."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may turn. Durations are seconds here, and "5s" wherever a person writes them."""

    edition: str = "lite"
    tick_interval: float = 1.0
    dispatch_workers: int = _ByEdition(1)
    dispatch_queue: int = _ByEdition(1)
    reap_limit: int = 100
    run_orphan_after: float = 300.0
    heartbeat_interval: float = _Fitting(15.0)
    heartbeat_timeout: float = 90.0
    lease_ttl: float = 3.0
    watchdog_interval: float = 5.0
    task_max_recoveries: int = 3
    checkpoint_interval: float = 0.2
    backoff_base: float = 1.0
    backoff_max: float = 60.0
    component_max_failures: int = 5
    restarts_per_hour: int = 20
    success_reset: float = 60.0
    unload_timeout: float = 5.0
    dead_letter_limit: int = 1000
    retention: float = 90 * 86400.0
    tenant_retention: dict[str, float] = {}
    kafka_servers: str | None = None
    nats_servers: str | None = None
    store: str | None = None
    packages: str | None = None
    load_published: bool = False
    package_poll_interval: float = 5.0
    allow_downgrade: bool = False
    require_signatures: bool = False
    trusted_keys: str | None = None

    def __repr__(self) -> str:
        """Show everything but the password in the store's address."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"Settings({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return what is shown of each field."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return list((shown | {"store": self.store and without_password(self.store)}).items())

    @classmethod
    def read(
        cls,
        given: "Settings | Mapping[str, Any] | None" = None,
        *,
        environment: Mapping[str, str] | None = None,
        file: Mapping[str, Any] | None = None,
    ) -> "Settings":
        """Gather settings from a file's content, then the environment, then what was given."""
        if isinstance(given, Settings):
            return given
        values: dict[str, Any] = dict(file or {})
        environment = os.environ if environment is None else environment
        known = set(cls.__struct_fields__)
        for name in known:
            if (text := environment.get(PREFIX + name.upper())) is not None:
                values[name] = text
        values |= given or {}
        if unknown := sorted(values.keys() - known):
            hints = ", ".join(f"'{name}'{did_you_mean(name, known)}" for name in unknown)
            raise DefinitionError.of("settings", f"unknown setting {hints}")
        return cls(**values)

    def __post_init__(self) -> None:
        """Turn what people write into numbers, and fill in what follows from the edition."""
        if self.edition not in _EDITIONS:
            raise DefinitionError.of("settings", f"edition is 'lite' or 'pro', not {self.edition!r}")
        for name, number in _EDITIONS[self.edition].items():
            if isinstance(getattr(self, name), _ByEdition):
                force_setattr(self, name, number)
        is_fitted = isinstance(self.heartbeat_interval, _Fitting)
        hints = get_type_hints(Settings)
        for name in self.__struct_fields__:
            force_setattr(self, name, _typed(name, getattr(self, name), hints[name]))
        self._fit_heartbeats(may_change=is_fitted)

    def _fit_heartbeats(self, *, may_change: bool) -> None:
        """Let an attempt that lives be heard of several times before its silence means anything."""
        interval, timeout = self.heartbeat_interval, self.heartbeat_timeout
        longest = timeout / _BEATS
        if may_change:
            force_setattr(self, "heartbeat_interval", min(interval, longest))
        elif interval > longest and not isclose(interval, longest):
            raise DefinitionError.of(
                "settings",
                "heartbeat_interval is at most a third of heartbeat_timeout, or tasks that live would be taken for "
                f"lost: {written(interval)} is more than a third of {written(timeout)}",
            )


def _typed(name: str, value: Any, kind: Any) -> Any:
    try:
        if kind is float:  # every one is a duration
            read = parse if name in _MAY_BE_ZERO else parse_positive
            return read(float(value) if isinstance(value, str) and _is_number(value) else value)
        if name in _PATHS:
            return None if value is None else str(Path(value).absolute())
        if name == "tenant_retention":
            return _by_tenant(value)
        if kind is bool:
            return _flag(value)
        return _whole(value, least=int(name in _AT_LEAST_ONE)) if kind is int else value
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise DefinitionError.of("settings", f"{name}: {error}") from error


def _by_tenant(value: Any) -> dict[str, float]:
    """Return a duration for each of some tenants, also from a text such as "acme=30d, beta=7d"."""
    if isinstance(value, str):
        parts = (part.partition("=") for part in value.split(",") if part.strip())
        value = {name: kept for name, _, kept in parts}
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} names no tenants: write it like 'acme=30d, beta=7d', or as a mapping")
    found = {name.strip() if isinstance(name, str) else name: kept for name, kept in value.items()}
    if unknown := [name for name in found if not is_name(name)]:
        raise ValueError(f"{unknown[0]!r} cannot be the name of a tenant")
    return {name: parse(kept.strip() if isinstance(kept, str) else kept) for name, kept in found.items()}


def _whole(value: Any, least: int) -> int:
    number = int(value)
    if not least <= number <= LARGEST or (isinstance(value, float) and value != number):
        raise ValueError(f"{value!r} is not a whole number from {least} to {LARGEST}")
    return number


def _flag(value: Any) -> bool:
    found = _FLAGS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError(f"{value!r} is neither true nor false: write 'true' or 'false' (also yes, no, 1, 0)")
    return found


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
