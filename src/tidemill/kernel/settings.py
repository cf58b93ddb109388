"""Settings: read once, frozen, passed down. Keywords win over the environment, which wins over a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from tidemill.kernel.durations import parse
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.suggestions import did_you_mean

PREFIX = "TIDEMILL_"
_DURATIONS = frozenset(
    [
        "tick_interval",
        "run_orphan_after",
        "heartbeat_interval",
        "heartbeat_timeout",
        "lease_ttl",
        "watchdog_interval",
        "checkpoint_interval",
        "backoff_base",
        "backoff_max",
        "success_reset",
        "unload_timeout",
        "retention",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator may turn. Durations are seconds here, and "5s" wherever a person writes them."""

    edition: str = "lite"
    tick_interval: float = 1.0
    dispatch_workers: int = 1
    dispatch_queue: int = 1
    reap_limit: int = 100
    run_orphan_after: float = 300.0
    heartbeat_interval: float = 15.0
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
    kafka_servers: str | None = None
    nats_servers: str | None = None

    @classmethod
    def read(
        cls,
        given: "Settings | Mapping[str, Any] | None" = None,
        *,
        environment: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> "Settings":
        """Gather settings from a TOML file, then the environment, then what was given."""
        if isinstance(given, Settings):
            return given
        values: dict[str, Any] = {}
        if file is not None:
            values |= tomllib.loads(file.read_text())
        environment = os.environ if environment is None else environment
        known = {field.name for field in fields(cls)}
        for name in known:
            if (text := environment.get(PREFIX + name.upper())) is not None:
                values[name] = text
        values |= given or {}
        if unknown := sorted(values.keys() - known):
            hints = ", ".join(f"'{name}'{did_you_mean(name, known)}" for name in unknown)
            raise DefinitionError.of("settings", f"unknown setting {hints}")
        typed = {name: _typed(name, value) for name, value in values.items()}
        return cls(**(_edition_defaults(values) | typed))


def _edition_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    edition = values.get("edition", "lite")
    if edition not in ("lite", "pro"):
        raise DefinitionError.of("settings", f"edition is 'lite' or 'pro', not {edition!r}")
    pro = {"dispatch_workers": 16, "dispatch_queue": 256} if edition == "pro" else {}
    return dict(pro)


def _typed(name: str, value: Any) -> Any:
    try:
        if name in _DURATIONS:
            return parse(float(value) if isinstance(value, str) and _is_number(value) else value)
        return int(value) if get_type_hints(Settings)[name] is int else value
    except (TypeError, ValueError) as error:
        raise DefinitionError.of("settings", f"{name}: {error}") from error


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
