"""Settings: read once, frozen, passed down. Keywords win over the environment, which wins over a file."""

import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from ipaddress import ip_network
from math import isclose
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import force_setattr

from tidemill.kernel.durations import format_duration, parse_duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError, Location
from tidemill.kernel.limits import MAX_INTEGER, is_name
from tidemill.kernel.suggestions import close_names, did_you_mean
from tidemill.kernel.urls import mask_credentials, mask_password

EventLoop = Literal["auto", "asyncio", "uvloop"]
"""The event loop of a command that runs a node; "auto" is uvloop if it is installed."""
ENVIRONMENT_PREFIX = "TIDEMILL_"
SECRET_PREFIX = "TIDEMILL_SECRET_"
"""Begins the name of a variable with a secret of author code; but for those that settings have."""
FILE_SUFFIX = "_FILE"
"""Ends the name of a variable that names a file with the value: secrets come as files, which no child inherits."""
OTHER_VARIABLES = frozenset(
    [
        *("TIDEMILL_SERVER", "TIDEMILL_KEY"),  # of commands
        *("TIDEMILL_ATTEMPT_TOKEN", "TIDEMILL_ATTEMPT_TOKEN_FILE", "TIDEMILL_PROBE"),  # of processes that nodes start
        *("TIDEMILL_KEYS", "TIDEMILL_PASSWORD", "TIDEMILL_VERSION"),  # of exported files
    ]
)
"""Variables with the prefix of settings that other parts of the product read."""
TEST_PREFIX = "TIDEMILL_TEST_"
"""Begins the names of variables that tests read."""
_SERVICE_HOST_SUFFIX = "_SERVICE_HOST"
"""Ends a variable that Kubernetes sets in pods for each service, together with others of the same beginning."""
_ZERO_ALLOWED = frozenset(
    [
        "run_orphan_after",
        "backoff_base",
        "backoff_max",
        "success_reset",
        "unload_timeout",
        "retention",
        "rebalance_delay",
    ]
)
"""Durations that may be zero. The others are waited for in a loop, which would spin."""
_PATH_SETTINGS = frozenset(["kubernetes_config", "packages", "secrets_dir", "trusted_keys"])
"""Paths, made absolute when they are read: author code may change the working directory later."""
_MASKS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(["secret_keys", "oidc_client_secret", "vault_token"], lambda _: "***"),
    **dict.fromkeys(["store", "postgres_url", "redis_url", "mqtt_url", "ray_host_store"], mask_password),
    "nats_servers": mask_credentials,
}
"""How each setting that is a secret, or an address that may hold one, is shown."""
_BOOLEAN_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_EDITION_DEFAULTS: dict[str, dict[str, int]] = {"lite": {}, "pro": {"dispatch_workers": 16, "dispatch_queue": 256}}
_AT_LEAST_ONE = frozenset(
    [
        "active_keys",
        "dispatch_workers",
        "dispatch_queue",
        "package_history",
        "ray_max_attempts",
        "reap_limit",
        "result_limit",
        "requests_per_second",
        "connections_per_key",
        "metric_series",
        "body_bytes_per_second",
    ]
)
"""Numbers that must not be 0: work would silently never be done."""
_SIZES = frozenset(["probe_memory", "result_limit"])
"""Numbers of bytes, which may be texts such as "4GiB"."""
_OPTIONAL_NUMBERS = {"ray_hosts": 0, "max_connections": 16}
"""Numbers that may be unset, and the smallest of each."""
_MIN_HEARTBEATS_PER_TIMEOUT = 3
"""The number of heartbeats that fit into a lease, at least: two of them may be late or lost."""


class _EditionDefault(int):
    """A default that an edition may change; an explicit number is a plain int."""


class _CappedDefault(float):
    """A default that another setting may lower; an explicit duration is a plain float or a text."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a node. Durations are seconds here, and "5s" wherever a person writes them."""

    edition: str = "lite"
    tick_interval: float = 1.0
    dispatch_workers: int = _EditionDefault(1)
    dispatch_queue: int = _EditionDefault(1)
    reap_limit: int = 100
    run_orphan_after: float = 300.0
    heartbeat_interval: float = _CappedDefault(15.0)
    heartbeat_timeout: float = 90.0
    lease_ttl: float = 3.0
    blocked_loop_warning: float = 1.0
    blocked_loop_limit: float = 30.0
    watchdog_interval: float = 5.0
    task_max_recoveries: int = 3
    checkpoint_interval: float = 0.2
    active_keys: int = 100_000
    backoff_base: float = 1.0
    backoff_max: float = 60.0
    component_max_failures: int = 5
    restarts_per_hour: int = 20
    success_reset: float = 60.0
    unload_timeout: float = 5.0
    dead_letter_limit: int = 1000
    retention: float = 90 * 86400.0
    tenant_retention: dict[str, float] = {}
    tenant_weights: dict[str, int] = {}
    audit_retention: float = 365 * 86400.0
    kafka_servers: str | None = None
    nats_servers: str | None = None
    postgres_url: str | None = None
    redis_url: str | None = None
    mqtt_url: str | None = None
    kubernetes_config: str | None = None
    ray_address: str | None = None
    ray_namespace: str = "tidemill"
    ray_runtime_env: dict[str, Any] = {}
    ray_max_attempts: int = 100
    ray_pending_timeout: float = 600.0
    ray_hosts: int | None = None
    ray_host_store: str | None = None
    partition_weight: int = 1
    rebalance_delay: float = 3.0
    store: str | None = None
    packages: str | None = None
    package_history: int = 10
    load_published: bool = False
    otlp_endpoint: str | None = None
    package_poll_interval: float = 5.0
    probe_timeout: float = 10.0
    probe_memory: int = 2**30
    allow_downgrade: bool = False
    require_signatures: bool = False
    tenant_uploads: bool = False
    trusted_keys: str | None = None
    secret_keys: str | None = None
    secrets_dir: str | None = None
    vault_address: str | None = None
    vault_token: str | None = None
    vault_path: str = "secret/tidemill"
    requests_per_second: int = 1000
    connections_per_key: int = 5000
    metric_series: int = 500
    max_connections: int | None = None
    head_timeout: float = 10.0
    keep_alive_timeout: float = 5.0
    body_bytes_per_second: int = 500
    trusted_proxies: str = "127.0.0.1, ::1"
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = None
    oidc_allow_private: bool = False
    server_url: str | None = None
    public_url: str | None = None
    peer_url: str | None = None
    unfinished: Literal["pin", "upgrade", "cancel"] = "pin"
    unread_state: Literal["warn", "refuse"] = "warn"
    event_loop: EventLoop = "auto"
    capture_output: bool = True
    result_limit: int = 64 * 2**20

    def __repr__(self) -> str:
        """Show everything but the credentials in addresses, and the keys of secrets."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"Settings({fields})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return each field with the value to show."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        masked = {name: values[name] and mask(values[name]) for name, mask in _MASKS.items()}
        return list((values | masked).items())

    @classmethod
    def read(
        cls,
        given: "Settings | Mapping[str, Any] | None" = None,
        *,
        environment: Mapping[str, str] | None = None,
        file: Mapping[str, Any] | None = None,
    ) -> "Settings":
        """Merge settings from a file's content, the environment and `given`; later ones win."""
        if isinstance(given, Settings):
            return given
        values: dict[str, Any] = dict(file or {})
        environment = os.environ if environment is None else environment
        known = set(cls.__struct_fields__)
        _reject_unknown_variables(environment, known)
        for name in known:
            if (text := _read_variable(environment, ENVIRONMENT_PREFIX + name.upper())) is not None:
                values[name] = text
        values |= given or {}
        if unknown := sorted(values.keys() - known):
            hints = ", ".join(f"'{name}'{did_you_mean(name, known)}" for name in unknown)
            raise DefinitionError.single("settings", f"unknown setting {hints}")
        return cls(**values)

    def __post_init__(self) -> None:
        """Convert texts into numbers, and fill in the defaults of the edition."""
        if self.edition not in _EDITION_DEFAULTS:
            raise DefinitionError.single("settings", f"edition is 'lite' or 'pro', not {self.edition!r}")
        for name, number in _EDITION_DEFAULTS[self.edition].items():
            if isinstance(getattr(self, name), _EditionDefault):
                force_setattr(self, name, number)
        is_default = isinstance(self.heartbeat_interval, _CappedDefault)
        hints = get_type_hints(Settings)
        for name in self.__struct_fields__:
            force_setattr(self, name, _convert_setting(name, getattr(self, name), hints[name]))
        self._cap_heartbeat_interval(is_default=is_default)

    def _cap_heartbeat_interval(self, *, is_default: bool) -> None:
        """Make sure that a running attempt sends several heartbeats before its lease expires."""
        interval, timeout = self.heartbeat_interval, self.heartbeat_timeout
        longest = timeout / _MIN_HEARTBEATS_PER_TIMEOUT
        if is_default:
            force_setattr(self, "heartbeat_interval", min(interval, longest))
        elif interval > longest and not isclose(interval, longest):
            raise DefinitionError.single(
                "settings",
                "heartbeat_interval is at most a third of heartbeat_timeout, or running tasks would be declared "
                f"lost: {format_duration(interval)} is more than a third of {format_duration(timeout)}",
            )


def secret_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables with a secret of author code, keys or an address with a password, or the file of one."""
    masks = {ENVIRONMENT_PREFIX + name.upper(): mask for name, mask in _MASKS.items()}
    values = {name: environment[name] for name in masks if name in environment}
    files = [name + FILE_SUFFIX for name in masks if name + FILE_SUFFIX in environment]
    of_settings = [*(name for name, value in values.items() if masks[name](value) != value), *files]
    of_code = [name for name in environment if name.startswith(SECRET_PREFIX) and name not in of_settings]
    return [*of_settings, *of_code]


def secret_variable(name: str) -> str | None:
    """Return the variable that holds a secret of author code; None if a setting has that variable."""
    variable = SECRET_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())
    setting = variable.removeprefix(ENVIRONMENT_PREFIX).removesuffix(FILE_SUFFIX).lower()
    return None if setting in Settings.__struct_fields__ else variable


def _reject_unknown_variables(environment: Mapping[str, str], settings: Collection[str]) -> None:
    """Raise a DefinitionError for variables that look like settings: a misspelt one would silently do nothing."""
    named = [name for name in environment if name.startswith(ENVIRONMENT_PREFIX)]
    variables = [ENVIRONMENT_PREFIX + name.upper() for name in settings]
    known = {*OTHER_VARIABLES, *variables, *(name + FILE_SUFFIX for name in variables)}
    services = [name.removesuffix(_SERVICE_HOST_SUFFIX) for name in named if name.endswith(_SERVICE_HOST_SUFFIX)]
    links = tuple(service + suffix for service in services for suffix in ("_SERVICE_", "_PORT"))
    others = (SECRET_PREFIX, TEST_PREFIX, *links)
    if unknown := sorted(name for name in named if name not in known and not name.startswith(others)):
        hints = ", ".join(f"'{name}'{_suggest_variable(name, known)}" for name in unknown)
        message = f"unknown variable {hints}: correct it, or remove it from the environment"
        raise DefinitionError.single("settings", message)


def _suggest_variable(name: str, known: Collection[str]) -> str:
    """Return " (did you mean 'x'?)"; names are compared without their prefix, which makes all of them alike."""
    near = close_names(name.removeprefix(ENVIRONMENT_PREFIX), [one.removeprefix(ENVIRONMENT_PREFIX) for one in known])
    return f" (did you mean '{ENVIRONMENT_PREFIX}{near[0]}'?)" if near else ""


def _read_variable(environment: Mapping[str, str], name: str) -> str | None:
    """Return the value of a variable, or the content of the file that `<name>_FILE` names; None for an empty file."""
    path = environment.get(name + FILE_SUFFIX)
    if not path:
        return environment.get(name)
    if environment.get(name):
        message = f"the environment has both {name} and {name}{FILE_SUFFIX}: remove one of them"
        raise DefinitionError.single("settings", message)
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        message = f"{name}{FILE_SUFFIX} names {path}, which cannot be read: {error}"
        raise DefinitionError.single("settings", message) from error


def _convert_setting(name: str, value: Any, kind: Any) -> Any:
    try:
        if kind is float:  # every one is a duration
            parse = parse_duration if name in _ZERO_ALLOWED else parse_positive_duration
            return parse(float(value) if isinstance(value, str) and _is_numeric_text(value) else value)
        if name in _PATH_SETTINGS:
            return None if value is None else str(Path(os.fspath(value)).absolute())
        if name == "tenant_retention":
            return {tenant: parse_duration(one) for tenant, one in _parse_by_tenant(value, "30d").items()}
        if name == "tenant_weights":
            return {tenant: _parse_integer(one, minimum=1) for tenant, one in _parse_by_tenant(value, "2").items()}
        if name in _OPTIONAL_NUMBERS:
            return None if value is None else _parse_integer(value, minimum=_OPTIONAL_NUMBERS[name])
        if name == "trusted_proxies":
            return _parse_networks(value)
        if name in _SIZES:
            return _parse_size(value)
        if name == "ray_runtime_env":
            return _parse_json_object(value)
        if kind is bool:
            return _parse_boolean(value)
        if words := get_args(kind) if get_origin(kind) is Literal else ():
            return _parse_word(value, words)
        return _parse_integer(value, minimum=int(name in _AT_LEAST_ONE)) if kind is int else value
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise DefinitionError.single("settings", f"{name}: {error}") from error


def _parse_by_tenant(value: Any, example: str) -> dict[str, Any]:
    """Return what a mapping has for each tenant, or a text such as "acme=30d, beta=7d"."""
    if isinstance(value, str):
        parts = (part.partition("=") for part in value.split(",") if part.strip())
        value = {name: given.strip() for name, _, given in parts}
    if not isinstance(value, Mapping):
        message = f"{value!r} names no tenants: write it like 'acme={example}, beta={example}', or as a mapping"
        raise TypeError(message)
    by_tenant = {name.strip() if isinstance(name, str) else name: given for name, given in value.items()}
    if invalid := [name for name in by_tenant if not is_name(name)]:
        raise ValueError(f"{invalid[0]!r} cannot be the name of a tenant")
    return by_tenant


def _parse_networks(value: Any) -> str:
    """Return addresses and networks, separated by commas; an empty text names none."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text: write it like '10.0.0.1, 10.1.2.0/24'")
    parts = [part.strip() for part in value.split(",") if part.strip()]
    for part in parts:
        ip_network(part)
    return ", ".join(parts)


def _parse_size(value: Any) -> int:
    """Return a number of bytes, or that of a text such as "4GiB"."""
    match = _SIZE_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    return _parse_integer(value, minimum=0) if match is None else int(match[1]) * _BYTES_PER_UNIT[match[2]]


def _parse_json_object(value: Any) -> dict[str, Any]:
    """Return a mapping, or that of a JSON text."""
    try:
        value = msgspec.json.decode(value) if isinstance(value, str) else value
    except msgspec.DecodeError as error:
        raise ValueError(f"{value!r} is not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise TypeError(f'{value!r} is not a JSON object, such as {{"pip": ["tidemill"]}}')
    return dict(value)


def _parse_integer(value: Any, minimum: int) -> int:
    number = int(value)
    if not minimum <= number <= MAX_INTEGER or (isinstance(value, float) and value != number):
        raise ValueError(f"{value!r} is not a whole number from {minimum} to {MAX_INTEGER}")
    return number


def _parse_boolean(value: Any) -> bool:
    boolean = _BOOLEAN_WORDS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(boolean, bool):
        raise ValueError(f"{value!r} is neither true nor false: write 'true' or 'false' (also yes, no, 1, 0)")
    return boolean


def _parse_word(value: Any, words: tuple[str, ...]) -> str:
    if value not in words:
        raise ValueError(f"{value!r} is not one of {', '.join(map(repr, words))}{did_you_mean(value, words)}")
    return str(value)


def _is_numeric_text(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


_SIZE_PATTERN = re.compile(r"(\d{1,6}) ?(MiB|GiB)")
_BYTES_PER_UNIT = {"MiB": 2**20, "GiB": 2**30}
_LINE_PATTERN = re.compile(r" \(at line (\d+), column \d+\)")


def parse_toml(text: str, file: str, subject: str) -> dict[str, Any]:
    """Return the content of a TOML text; DefinitionError, naming the subject, if it is not TOML."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # of TOML, or of a number with too many digits
        match = _LINE_PATTERN.search(str(error))
        line = int(match[1]) if match else text.count("\n") + 1
        raise DefinitionError.single(subject, f"it is not TOML: {error}", Location(file, line)) from error
    except RecursionError as error:
        raise DefinitionError.single(subject, "it is nested too deeply", Location(file, 1)) from error


def read_settings(path: str | Path) -> Settings:
    """Return the settings of a TOML file; the environment overrides them."""
    path = Path(path)
    return Settings.read(file=parse_toml(path.read_text(encoding="utf-8"), str(path), "settings"))
