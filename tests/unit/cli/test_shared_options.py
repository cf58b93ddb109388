"""The options of all commands, which may stand before or after a command."""

import json
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
import typer

from tests.unit.cli.command_line import REPORT, run
from tidemill.cli.main import app
from tidemill.cli.shared_options import WITHOUT_SERVER


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without profiles and settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TIDEMILL_SERVER", "TIDEMILL_KEY", "TIDEMILL_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def store(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The address of a store with a tenant and a variable of it."""
    address = f"sqlite:///{home}/store.db"
    assert run(monkeypatch, "tenant", "create", "acme", "--store", address) == 0
    assert run(monkeypatch, "variable", "set", "region", "eu", "--store", address, "--tenant", "acme") == 0
    capsys.readouterr()
    return address


def test_options_stand_anywhere(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the command, between its words, and after it, in every combination."""
    options = [["--store", store], ["--tenant=acme"], ["-o", "json"]]
    for places in product(range(3), repeat=3):
        words: list[str] = []
        for place, word in enumerate(["variable", "list", ""]):
            words += [one for option, at in zip(options, places, strict=True) if at == place for one in option]
            words += [word] if word else []
        assert run(monkeypatch, *words) == 0, words
        assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["region"], words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--store", "a", "key", "list", "--store", "b"], "--store says a and b"),
        (["key", "--tenant", "acme", "list", "--tenant", "other"], "--tenant says acme and other"),
        (["key", "list", "-o", "json", "-o", "table"], "--output says two things"),
        (["--profile", "a", "key", "list", "--server", "http://x"], "--server or --profile, not both"),
        (["key", "list", "--server", "http://x", "--store", "sqlite:///x.db"], "a server or --store, not both"),
        (["doctor", "--server", "http://x"], "`tidemill doctor` does not work with a server: name a store"),
        (["--profile", "a", "package", "new", "x"], "`tidemill package new` does not work with a server: leave out"),
        (["events", "--store", "sqlite:///x.db"], "works with a running server, not on a store"),
        (["--tenant", "acme", "pool", "set", "a", "1"], "`tidemill pool set` takes no --tenant"),
        (["-o", "json", "package", "build", "x"], "`tidemill package build` takes no --output"),
        (["key", "-o", "yaml", "list"], "'yaml' is not one of 'table', 'json'"),
    ],
)
def test_contradictions_and_options_that_mean_nothing_are_refused(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever they stand: a command must not do what its user did not mean."""
    assert run(monkeypatch, *words) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_what_is_said_twice_alike_is_no_contradiction(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an alias of a shell that names a store."""
    assert run(monkeypatch, "--store", store, "variable", "list", "--store", store) == 0


@pytest.mark.parametrize("words", [["runs", "list"], ["run"], ["reactor", "watch"], []])
def test_help_shows_each_option_once(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the command and those of all."""
    assert run(monkeypatch, *words, "--help") == 0
    listed = capsys.readouterr().out.partition("Options:")[2]
    options = [line.split()[0] for line in listed.splitlines() if line.startswith("  -")]
    assert {"--server", "--profile", "--tenant"} <= set(options)
    assert len(options) == len(set(options))


def test_commands_without_a_server_exist() -> None:
    """A name in the table that no command has would be a mistake."""
    root = typer.main.get_command(app)
    for name in WITHOUT_SERVER:
        noun, _, verb = name.partition(" ")
        group = root.get_command(None, noun)  # type: ignore[attr-defined]  # it is a group
        assert group is not None
        assert not verb or group.get_command(None, verb) is not None


def test_a_name_is_run_on_the_server_in_use(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D15: `tidemill run NAME` works with what the environment or the profile names, a file runs here."""
    monkeypatch.setattr("tidemill.client.connection.DEFAULT_RETRY.times", 0)
    monkeypatch.chdir(home)
    Path("named_flow.py").write_text(REPORT)
    monkeypatch.setenv("TIDEMILL_SERVER", "http://127.0.0.1:1")
    assert run(monkeypatch, "run", "daily_report") == 2
    assert "cannot be reached" in capsys.readouterr().err
    assert run(monkeypatch, "run", "named_flow.py", "--day", "2026-01-01", "-q") == 0
    assert run(monkeypatch, "run", "daily_report", "--store", f"sqlite:///{home}/runs.db") == 2
    assert "neither a file nor a module daily_report" in capsys.readouterr().err
    assert run(monkeypatch, "run", "named_flow.py", "--server", "http://127.0.0.1:1") == 2
    assert "is a file, and a server runs what it has loaded" in capsys.readouterr().err
    monkeypatch.delenv("TIDEMILL_SERVER")
    assert run(monkeypatch, "run", "named_flow", "--day", "2026-01-01", "-q") == 0


@pytest.mark.parametrize("words", [["doctor"], ["server"], ["db", "check"], ["worker"]])
def test_what_needs_a_store_names_no_server(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hint does not name what the command would refuse."""
    assert run(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert "name a store: --store" in said
    assert "server" not in said.casefold()


@pytest.mark.parametrize("words", [["events"], ["schedule", "list"]])
def test_what_needs_a_server_says_how_to_name_it(
    words: list[str], store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a profile in use, a store in the environment is what stands in its way; for derived commands too."""
    monkeypatch.setenv("TIDEMILL_STORE", store)
    assert run(monkeypatch, *words) == 2
    assert "works with a running server, not on a store: name one with --server URL" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", StringIO("tm_key"))
    assert run(monkeypatch, "profile", "add", "prod", "--server", "http://127.0.0.1:1") == 0
    capsys.readouterr()
    assert run(monkeypatch, *words) == 2
    assert "name the profile in use with --profile prod, because TIDEMILL_STORE" in capsys.readouterr().err
    monkeypatch.delenv("TIDEMILL_STORE")
    assert run(monkeypatch, *words, "--store", store) == 2
    said = capsys.readouterr().err
    assert "not on a store" in said
    assert "leave out --store, and the profile 'prod' is used" in said or "--server or --profile" in said


@pytest.mark.parametrize("words", [["list"], ["why", "--help"]])
def test_a_verb_after_run_names_the_command_about_runs(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` is followed by a workflow, and `runs` is the noun of what it starts."""
    assert run(monkeypatch, "run", *words) == 2
    assert f"did you mean `tidemill runs {words[0]}`?" in capsys.readouterr().err
    assert run(monkeypatch, "run", "market") == 2
    assert "for a workflow of a server, name the server with --server or --profile" in capsys.readouterr().err
