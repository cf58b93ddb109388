"""`tidemill db` as an operator would use it."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.unit.cli.test_graph import run
from tidemill.storage.migrations import load_migrations

NEWEST = len(load_migrations("tidemill.storage.sqlite"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store will be."""
    return tmp_path / "tidemill.db"


def test_an_upgrade_says_what_it_did(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second time there is nothing left to do."""
    assert run(monkeypatch, "db", "upgrade", "--store", f"sqlite:///{path}") == 0
    assert capsys.readouterr().out == f"SQLite database {path} upgraded from schema version 0 to {NEWEST}\n"
    assert run(monkeypatch, "db", "upgrade", "--store", f"sqlite:///{path}") == 0
    assert capsys.readouterr().out == f"SQLite database {path} is at schema version {NEWEST}: nothing to do\n"
    assert run(monkeypatch, "db", "check", "--store", f"sqlite:///{path}") == 0
    assert (
        capsys.readouterr().out == f"SQLite database {path} is at schema version {NEWEST}, which this Tidemill needs\n"
    )


def test_a_check_creates_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address may be misspelt."""
    assert run(monkeypatch, "db", "check", "--store", f"sqlite:///{path}") == 1
    assert f"has no schema yet, and this Tidemill needs version {NEWEST}: check the address" in (
        capsys.readouterr().out
    )
    assert not path.exists()


def test_a_newer_schema_is_left_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says which Tidemill to run."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert run(monkeypatch, "db", "check", "--store", f"sqlite:///{path}") == 1
    assert (
        f"is at schema version 99, and this Tidemill knows versions up to {NEWEST}: use the newer"
        in capsys.readouterr().out
    )
    assert run(monkeypatch, "db", "upgrade", "--store", f"sqlite:///{path}") == 2
    assert "its schema has version 99" in capsys.readouterr().err


def test_the_address_may_be_a_setting(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is given wins."""
    monkeypatch.setenv("TIDEMILL_STORE", f"sqlite:///{path}")
    assert run(monkeypatch, "db", "upgrade") == 0
    assert path.exists()
    assert run(monkeypatch, "db", "check", "--store", f"sqlite:///{path}.other") == 1


@pytest.mark.parametrize("command", [["db", "check"], ["db", "upgrade"], ["doctor"]])
@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        (None, "name a store: --store sqlite:///tidemill.db, or set TIDEMILL_STORE"),
        ("memory://", "a store in memory ends with its process"),
        ("mysql://me:secret@host/db", "store 'mysql://me:…@host/db': there is no store 'mysql'; an address looks like"),
        ("postgresql://me:secret@127.0.0.1:1/db", "PostgreSQL database db at 127.0.0.1:1: nothing listens there"),
        ("postgresql://me:se/cr@et@host/db", "the database URL cannot be read"),
    ],
)
def test_a_store_that_cannot_be_reached_is_exit_code_2(
    command: list[str],
    address: str | None,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, and never a password."""
    monkeypatch.delenv("TIDEMILL_STORE", raising=False)
    arguments = [] if address is None else ["--store", address]
    assert run(monkeypatch, *command, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(complaint)
    assert "secret" not in err
    assert "cr@et" not in err


async def test_a_postgresql_database_is_upgraded_once(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a thread, as the command runs a loop of its own."""
    url = await postgres.fresh_database()
    verbs = ("check", "upgrade", "check")
    codes = [await asyncio.to_thread(run, monkeypatch, "db", verb, "--store", url) for verb in verbs]
    assert codes == [1, 0, 0]
    out = capsys.readouterr().out.splitlines()
    assert "has no schema yet" in out[0]
    assert out[1].endswith(f"upgraded from schema version 0 to {NEWEST}")
    assert out[2].endswith(f"is at schema version {NEWEST}, which this Tidemill needs")


def test_what_a_schema_is_at_is_json_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """server.md, `-o json` everywhere; the exit code stays."""
    arguments = ["--store", f"sqlite:///{tmp_path / 'new.db'}", "-o", "json"]
    found = []
    for verb, code in [("check", 1), ("upgrade", 0), ("check", 0)]:
        assert run(monkeypatch, "db", verb, *arguments) == code
        found.append(json.loads(capsys.readouterr().out))
    assert [one.get("current") for one in found] == [False, None, True]
    assert (found[0]["found"], found[1]["before"], found[1]["now"]) == (0, 0, found[0]["known"])


def test_the_store_of_a_folder_below_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After `tidemill demo` or `tidemill dev hello`, the user is still in the folder above."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMILL_STORE", raising=False)
    (tmp_path / "hello" / ".tidemill").mkdir(parents=True)
    (tmp_path / "hello" / ".tidemill" / "dev.db").touch()
    assert run(monkeypatch, "runs", "list") == 2
    assert capsys.readouterr().err.endswith("; `tidemill dev` has one: sqlite:///hello/.tidemill/dev.db\n")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "; `tidemill dev` has one: sqlite:///.tidemill/dev.db\n"),
        (["--store", "desk"], "; `tidemill dev` has one: sqlite:///desk/.tidemill/dev.db\n"),
        (["--store", "desk/.tidemill/dev.db"], "; did you mean sqlite:///desk/.tidemill/dev.db?\n"),
        (["--store", "sqlite:///desk/tidemill.db"], "; `tidemill dev` has one: sqlite:///desk/.tidemill/dev.db\n"),
        (["--store", "nowhere"], "; `tidemill dev` has one: sqlite:///.tidemill/dev.db\n"),
    ],
)
def test_the_store_of_dev_is_named_where_it_is_near(
    given: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user of `tidemill dev` may not know where its store is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMILL_STORE", raising=False)
    for home in (tmp_path, tmp_path / "desk"):
        (home / ".tidemill").mkdir(parents=True)
        (home / ".tidemill" / "dev.db").touch()
    assert run(monkeypatch, "runs", "list", *given) == 2
    said = capsys.readouterr().err
    assert said.endswith(expected)
    assert "in memory" not in said
