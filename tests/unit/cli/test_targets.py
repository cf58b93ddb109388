"""Profiles, and what a command works on: a server or a store."""

import io
import json
import socket
from pathlib import Path

import pytest

from tests.unit.cli.command_line import run
from tidemill.cli.profiles import profiles_file, read_profiles
from tidemill.cli.targets import ServerTarget, StoreTarget, find_target
from tidemill.kernel.errors import RequestError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without profiles and settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TIDEMILL_SERVER", "TIDEMILL_KEY", "TIDEMILL_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def add(monkeypatch: pytest.MonkeyPatch, name: str, *options: str, key: str = "") -> int:
    """Add a profile with a key on standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(key))
    return run(monkeypatch, "profile", "add", name, "--server", f"http://{name}.example", *options)


def test_profiles_are_added_used_and_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one is in use; no output has a key, and only the user can read the file."""
    assert add(monkeypatch, "prod", key="tm_canary\n") == 0
    assert add(monkeypatch, "test", "--tenant", "acme") == 0
    file = profiles_file()
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_profiles(file).by_name["prod"].key == "tm_canary"
    assert run(monkeypatch, "profile", "use", "test") == 0
    capsys.readouterr()
    assert run(monkeypatch, "profile", "list", "-o", "json") == 0
    said = capsys.readouterr().out
    assert [(one["profile"], one["has_key"], one["in_use"]) for one in json.loads(said)] == [
        ("prod", True, False),
        ("test", False, True),
    ]
    assert run(monkeypatch, "profile", "list") == 0
    assert run(monkeypatch, "profile", "remove", "test") == 0
    assert run(monkeypatch, "profile", "use", "prd") == 2
    shown = capsys.readouterr()
    assert "did you mean 'prod'" in shown.err
    assert "tm_canary" not in said + shown.out + shown.err
    assert read_profiles(file).current is None


def test_a_profile_that_cannot_be_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what is wrong with it."""
    assert run(monkeypatch, "profile", "add", "a b", "--server", "http://x") == 2
    assert run(monkeypatch, "profile", "add", "prod", "--server", "somewhere") == 2
    profiles_file().parent.mkdir()
    for text in ("current = [", "profiles = 3", "[profiles.prod]\nserver = 3", "[profiles.prod]\nsrver = 'x'"):
        profiles_file().write_text(text)
        assert run(monkeypatch, "profile", "list") == 2
    assert str(profiles_file()) in capsys.readouterr().err


def test_keys_that_others_can_read_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-4: as ssh does."""
    add(monkeypatch, "prod", key="tm_canary")
    profiles_file().chmod(0o644)
    assert run(monkeypatch, "profile", "list") == 2
    assert "chmod 600" in capsys.readouterr().err


def test_a_command_works_on_what_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, then the environment, then the profile in use."""
    assert find_target(None) == StoreTarget(None)
    add(monkeypatch, "prod", key="tm_profile")
    target = find_target(None)
    assert isinstance(target, ServerTarget)
    assert (target.profile.server, target.profile.key) == ("http://prod.example", "tm_profile")
    assert find_target("sqlite:///x.db") == StoreTarget("sqlite:///x.db")
    monkeypatch.setenv("TIDEMILL_STORE", "sqlite:///y.db")
    assert find_target(None) == StoreTarget("sqlite:///y.db")
    monkeypatch.setenv("TIDEMILL_SERVER", "http://env.example")
    with pytest.raises(RequestError, match="both TIDEMILL_SERVER and TIDEMILL_STORE are set"):
        find_target(None)
    monkeypatch.delenv("TIDEMILL_STORE")
    monkeypatch.setenv("TIDEMILL_KEY", "tm_env")
    target = find_target(None)
    assert isinstance(target, ServerTarget)
    assert (target.profile.server, target.profile.key) == ("http://env.example", "tm_env")
    assert "tm_env" not in repr(target)


@pytest.mark.parametrize(
    "options",
    [
        ["--server", "http://x", "--profile", "prod", "key", "list"],
        ["--server", "http://x", "key", "list", "--store", "sqlite:///x.db"],
    ],
)
def test_two_targets_are_an_error(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command must not change what its user did not mean."""
    assert run(monkeypatch, *options) == 2
    assert "not both" in capsys.readouterr().err


def test_no_target_is_an_error_that_names_all_ways(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the options and the variables."""
    assert run(monkeypatch, "key", "list") == 2
    said = capsys.readouterr().err
    assert all(word in said for word in ("--server", "--store", "TIDEMILL_SERVER", "TIDEMILL_STORE"))


def test_a_server_that_is_away_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of the client are one line on standard error, and exit code 2."""
    monkeypatch.setattr("tidemill.client.connection.DEFAULT_RETRY.times", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert run(monkeypatch, "--server", url, "runs", "list") == 2
    assert "cannot be reached" in capsys.readouterr().err
