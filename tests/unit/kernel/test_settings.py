"""Settings: from a file, the environment and keywords, checked, frozen."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.kernel.settings import _reject_unknown_variables, read_settings

DOCUMENTED = {
    "edition": "lite",
    "tick_interval": 1.0,
    "dispatch_workers": 1,
    "dispatch_queue": 1,
    "reap_limit": 100,
    "run_orphan_after": 300.0,
    "heartbeat_interval": 15.0,
    "heartbeat_timeout": 90.0,
    "lease_ttl": 3.0,
    "blocked_loop_warning": 1.0,
    "blocked_loop_limit": 30.0,
    "watchdog_interval": 5.0,
    "task_max_recoveries": 3,
    "checkpoint_interval": 0.2,
    "backoff_base": 1.0,
    "backoff_max": 60.0,
    "component_max_failures": 5,
    "restarts_per_hour": 20,
    "success_reset": 60.0,
    "unload_timeout": 5.0,
    "dead_letter_limit": 1000,
    "retention": 90 * 86400.0,
    "packages": None,
    "package_poll_interval": 5.0,
    "require_signatures": False,
    "trusted_keys": None,
}


def read(given: dict[str, Any] | None = None, file: str = "", **environment: str) -> tm.Settings:
    """Read settings from all three sources."""
    variables = {f"TIDEMILL_{name.upper()}": value for name, value in environment.items()}
    return tm.Settings.read(given, environment=variables, file=tomllib.loads(file))


@pytest.mark.parametrize(("name", "value"), list(DOCUMENTED.items()))
def test_the_defaults_are_those_of_the_documentation(name: str, value: Any) -> None:
    """Settings that exist on every node."""
    assert getattr(read(), name) == value
    assert getattr(tm.Settings(), name) == value


def test_the_pro_edition_dispatches_more() -> None:
    """dispatch_workers and dispatch_queue: 1/1 lite, 16/256 pro; explicit values win."""
    for settings in (read({"edition": "pro"}), read(edition="pro"), tm.Settings(edition="pro")):
        assert (settings.dispatch_workers, settings.dispatch_queue) == (16, 256)
    assert read({"edition": "pro", "dispatch_workers": 1}).dispatch_workers == 1
    assert tm.Settings(edition="pro", dispatch_queue=9).dispatch_queue == 9


def test_keywords_win_over_the_environment_which_wins_over_the_file() -> None:
    """Env `TIDEMILL_…`, TOML, keyword."""
    file = 'tick_interval = "3s"\nreap_limit = 3\nlease_ttl = "3s"\n'
    settings = read({"tick_interval": "1s"}, file, tick_interval="2s", reap_limit="2")
    assert (settings.tick_interval, settings.reap_limit, settings.lease_ttl) == (1.0, 2, 3.0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5.0), ("200ms", 0.2), ("5", 5.0), ("0.5", 0.5), ("1h30m", 5400.0)]
)
def test_durations_are_written_as_people_do(text: str, seconds: float) -> None:
    """A duration is "5s" wherever a person writes it, and seconds inside."""
    assert read(tick_interval=text).tick_interval == seconds
    assert read({"tick_interval": text}).tick_interval == seconds
    assert tm.Settings(tick_interval=text).tick_interval == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("edition", "premium"),
        ("tick_interval", "soon"),
        ("tick_interval", -1),
        ("reap_limit", "many"),
        ("reap_limit", 0),
        ("max_connections", 15),
        ("body_bytes_per_second", 0),
        ("trusted_proxies", "proxy.example"),
        ("trusted_proxies", "10.0.0.1/8"),
        ("trusted_proxies", 10),
        ("dispatch_workers", 0),
        ("dispatch_queue", 0),
        ("reap_limit", -1),
        ("reap_limit", 1.5),
        ("reap_limit", 2**31),
        ("reap_limit", float("inf")),
        ("dispatch_workers", "9" * 30),
        ("retention", None),
        ("retention", "4000000d"),
        ("run_orphan_after", "100000000d"),
        ("heartbeat_timeout", float("inf")),
        ("require_signatures", "maybe"),
        ("require_signatures", ""),
        ("require_signatures", 2),
        ("require_signatures", None),
    ],
)
def test_an_invalid_value_is_rejected_with_its_name(name: str, value: Any) -> None:
    """Messages name the value and the setting."""
    for declare in (lambda: read({name: value}), lambda: tm.Settings(**{name: value})):
        with pytest.raises(tm.DefinitionError, match=name) as caught:
            declare()
        assert "settings" in str(caught.value)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("YES", True), ("1", True), ("no", False), ("0", False)])
def test_booleans_are_written_as_people_do(text: str, value: bool) -> None:
    """In the environment everything is text; "false" must not count as true."""
    assert read(require_signatures=text).require_signatures is value
    assert read(file=f"require_signatures = {str(value).lower()}").require_signatures is value
    assert tm.Settings(require_signatures=value).require_signatures is value


@pytest.mark.parametrize("given", ["acme=30d, beta = 1h", {"acme": "30d", "beta": 3600}])
def test_retention_is_set_per_tenant(given: Any) -> None:
    """W-18: retention is per tenant; in the environment it is a text."""
    found = tm.Settings.read({"tenant_retention": given}, environment={})
    assert found.tenant_retention == {"acme": 30 * 86400.0, "beta": 3600.0}
    assert tm.Settings.read({"tenant_retention": ""}, environment={}).tenant_retention == {}


@pytest.mark.parametrize("given", ["acme=2, beta = 1", {"acme": 2, "beta": "1"}])
def test_weights_are_set_per_tenant(given: Any) -> None:
    """In the environment they are a text."""
    assert tm.Settings.read({"tenant_weights": given}, environment={}).tenant_weights == {"acme": 2, "beta": 1}


@pytest.mark.parametrize("given", ["acme", "acme=0", "acme=1.5", {"acme": 0.5}, 3])
def test_an_invalid_tenant_weight_is_rejected(given: Any) -> None:
    """With the name of the setting."""
    with pytest.raises(tm.DefinitionError, match="tenant_weights: "):
        tm.Settings.read({"tenant_weights": given}, environment={})


@pytest.mark.parametrize("given", ["acme", "=30d", "acme=soon", "a/b=1d", 3, {"acme": None}, {3: "1d"}])
def test_an_invalid_tenant_retention_is_rejected(given: Any) -> None:
    """With the name of the setting."""
    with pytest.raises(tm.DefinitionError, match="tenant_retention: "):
        tm.Settings.read({"tenant_retention": given}, environment={})


def test_an_unknown_name_is_rejected_with_a_suggestion() -> None:
    """A misspelt setting would silently change nothing."""
    with pytest.raises(tm.DefinitionError, match="did you mean 'tick_interval'"):
        read({"tick_intervall": "1s"})
    with pytest.raises(tm.DefinitionError, match="did you mean 'lease_ttl'"):
        read(file='lease_tll = "1s"')


def test_settings_are_frozen() -> None:
    """One frozen Settings, passed down."""
    with pytest.raises(AttributeError):
        read().tick_interval = 2.0  # type: ignore[misc]


def test_settings_pass_through_unchanged() -> None:
    """`read` returns a Settings object as it is."""
    settings = tm.Settings(reap_limit=7)
    assert tm.Settings.read(settings, environment={"TIDEMILL_REAP_LIMIT": "9"}) is settings


def test_other_environment_variables_are_ignored() -> None:
    """Only names with the prefix count."""
    assert tm.Settings.read(environment={"TICK_INTERVAL": "9s", "tidemill_tick_interval": "9s"}).tick_interval == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "watchdog_interval",
        "tick_interval",
        "checkpoint_interval",
        "heartbeat_interval",
        "package_poll_interval",
    ],
)
def test_a_zero_interval_is_rejected(name: str) -> None:
    """A service that does not wait between two checks would spin."""
    with pytest.raises(tm.DefinitionError, match=f"{name}: '0s' is not a duration longer than zero"):
        read(**{name: "0s"})
    assert read(unload_timeout="0s", backoff_base="0s").unload_timeout == 0


# -- heartbeats


@pytest.mark.parametrize(
    ("timeout", "interval"), [("10s", 10 / 3), ("45s", 15.0), ("46s", 15.0), ("5m", 15.0), ("300ms", 0.1)]
)
def test_a_shorter_timeout_shortens_the_heartbeat_interval(timeout: str, interval: float) -> None:
    """W-11, do no harm: a running attempt sends three heartbeats before its lease expires."""
    assert read({"heartbeat_timeout": timeout}).heartbeat_interval == pytest.approx(interval)
    assert tm.Settings(heartbeat_timeout=timeout).heartbeat_interval == pytest.approx(interval)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"heartbeat_interval": "2m"}, "2m is more than a third of 1m30s"),
        ({"heartbeat_interval": "31s"}, "31s is more than a third of 1m30s"),
        ({"heartbeat_interval": "15s", "heartbeat_timeout": "10s"}, "15s is more than a third of 10s"),
    ],
)
def test_a_heartbeat_interval_that_is_too_long_is_rejected(given: dict[str, Any], words: str) -> None:
    """W-11: the message names both settings."""
    with pytest.raises(tm.DefinitionError, match=f"heartbeat_interval .* heartbeat_timeout, .*: {words}"):
        read(given)
    with pytest.raises(tm.DefinitionError, match=words):
        read(**given)


@pytest.mark.parametrize(("interval", "timeout"), [("30s", "90s"), (0.1, 0.3), ("15s", "1h")])
def test_a_third_is_enough(interval: Any, timeout: Any) -> None:
    """Also if it cannot be written exactly."""
    settings = read({"heartbeat_interval": interval, "heartbeat_timeout": timeout})
    assert tm.Settings.read(settings) is settings


# -- in a file


def test_a_file_is_read_below_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs, Settings, In a file: the same names, durations as people write them."""
    path = tmp_path / "tidemill.toml"
    path.write_text('lease_ttl = "4s"\nretention = "30d"\nreap_limit = 7\n\n[tenant_retention]\nacme = "7d"\n')
    monkeypatch.setenv("TIDEMILL_LEASE_TTL", "6s")
    settings = read_settings(str(path))
    assert (settings.lease_ttl, settings.retention, settings.reap_limit) == (6.0, 30 * 86400.0, 7)
    assert settings.tenant_retention == {"acme": 7 * 86400.0}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("lease_ttl = 3s\n", 1),
        ('lease_ttl = "3s"\n\nretention = \n', 3),
        ('lease_ttl = "3s"\nlease_ttl = "4s"\n', 2),
        ('lease_ttl = "3s"\n\nstore = "sqlite:///a', 3),
    ],
)
def test_a_file_that_is_not_toml_is_reported_with_its_line(tmp_path: Path, content: str, line: int) -> None:
    """API, errors: definition errors have a location."""
    path = tmp_path / "tidemill.toml"
    path.write_text(content)
    with pytest.raises(tm.DefinitionError, match=r"^settings: .*it is not TOML: ") as caught:
        read_settings(path)
    (problem,) = caught.value.problems
    assert str(problem.location) == f"{path}:{line}"


def test_paths_are_made_absolute_when_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-5: author code may change the folder of the process at any time."""
    monkeypatch.chdir(tmp_path)
    settings = tm.Settings.read({"packages": "flows", "trusted_keys": "keys/all.pub"})
    assert settings.packages == str(tmp_path / "flows")
    assert settings.trusted_keys == str(tmp_path / "keys" / "all.pub")
    assert tm.Settings.read({"packages": "/flows"}, environment={}).packages == "/flows"
    with pytest.raises(tm.DefinitionError, match=r"^settings: packages: .* not int"):
        tm.Settings.read({"packages": 5})


def test_a_variable_may_name_a_file_with_the_value(tmp_path: Path) -> None:
    """S-6: a secret that systemd or Kubernetes mounts as a file is in no environment; an empty file sets nothing."""
    file = tmp_path / "keys"
    file.write_text("2026:abc\n")
    assert read(secret_keys_file=str(file)).secret_keys == "2026:abc"
    file.write_text("\n")
    assert read(secret_keys_file=str(file)).secret_keys is None


def test_a_file_of_a_variable_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Without its keys a node could not decrypt secrets; it must not start."""
    with pytest.raises(tm.DefinitionError, match=r"TIDEMILL_SECRET_KEYS_FILE names .*missing, which cannot be read"):
        read(secret_keys_file=str(tmp_path / "missing"))


def test_a_variable_and_its_file_contradict_each_other(tmp_path: Path) -> None:
    """Which of them counts would be a guess."""
    with pytest.raises(tm.DefinitionError, match="has both TIDEMILL_STORE and TIDEMILL_STORE_FILE: remove one"):
        read(store="sqlite:///a.db", store_file=str(tmp_path / "store"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TIDEMILL_REQUIRE_SIGNATURE", "TIDEMILL_REQUIRE_SIGNATURES"),
        ("TIDEMILL_STORE_FIEL", "TIDEMILL_STORE_FILE"),
        ("TIDEMILL_SERVERS", "TIDEMILL_SERVER"),
        ("TIDEMILL_HTTP_PORT", None),
    ],
)
def test_an_unknown_variable_is_an_error_that_names_the_nearest(name: str, meant: str | None) -> None:
    """D2: a misspelt setting would silently do nothing."""
    hint = f" (did you mean '{meant}'?)" if meant else ""
    with pytest.raises(tm.DefinitionError) as caught:
        tm.Settings.read(environment={"PATH": "/bin", name: "true"})
    assert f"unknown variable '{name}'{hint}: correct it" in str(caught.value)


def test_a_node_and_a_file_of_settings_reject_an_unknown_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: also one that nothing resembles; settings that a program passes whole ignore the environment."""
    (tmp_path / "tidemill.toml").write_text("")
    monkeypatch.setenv("TIDEMILL_XYZZY", "1")
    for make in (tm.Node, lambda: read_settings(tmp_path / "tidemill.toml")):
        with pytest.raises(tm.DefinitionError, match="unknown variable 'TIDEMILL_XYZZY': correct it"):
            make()
    assert tm.Node(settings=tm.Settings()).settings == tm.Settings()


def test_variables_that_kubernetes_sets_for_a_service_are_accepted() -> None:
    """D2: in every pod of a namespace with the services `tidemill` and `tidemill-web`."""
    for service in ("TIDEMILL", "TIDEMILL_WEB"):
        links = ["PORT", "SERVICE_PORT", "SERVICE_PORT_HTTP"]
        links += ["PORT_8080_TCP", "PORT_8080_TCP_PROTO", "PORT_8080_TCP_PORT", "PORT_8080_TCP_ADDR"]
        environment = {f"{service}_{link}": "tcp://10.0.0.1:8080" for link in links}
        assert tm.Settings.read(environment={f"{service}_SERVICE_HOST": "10.0.0.1", **environment}) == tm.Settings()
        with pytest.raises(tm.DefinitionError, match=f"'{service}_PORT'"):
            tm.Settings.read(environment=environment)


def test_every_variable_that_the_product_reads_is_known() -> None:
    """D2: also those of exported files; what a node would reject could not be set where it runs."""
    package = Path(tm.__file__).parent
    texts = [path.read_text() for path in package.rglob("*.py")]
    names = {name for text in texts for name in re.findall(r'_VARIABLE = "(TIDEMILL_[A-Z_]+)"', text)}
    assert names >= {"TIDEMILL_SERVER", "TIDEMILL_KEY", "TIDEMILL_ATTEMPT_TOKEN", "TIDEMILL_PROBE"}
    for path in (package / "cli" / "export" / "files").rglob("*.*"):
        names |= set(re.findall(r"\bTIDEMILL_[A-Z_]*[A-Z]\b", path.read_text())) if path.is_file() else set()
    assert {"TIDEMILL_PASSWORD", "TIDEMILL_TRUSTED_PROXIES"} < names
    for name in names:
        _reject_unknown_variables({name: "x"}, tm.Settings.__struct_fields__)
