"""`tidemill doctor` as an operator at night would use it."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.damage import change, fill
from tests.service.samples import single
from tests.unit.cli.test_db import NEWEST
from tests.unit.cli.test_graph import run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that a killed node left behind."""
    path = tmp_path / "tidemill.db"
    asyncio.run(fill(path))
    return path


def test_a_healthy_store_is_one_line_of_praise(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it holds, and that nothing is wrong."""
    assert run(monkeypatch, "doctor", "--store", f"sqlite:///{path}") == 0
    title, summary = capsys.readouterr().out.splitlines()
    assert title.startswith(f"SQLite database {path}, last written ")
    assert summary == "1 reactor, 2 accumulators, 2 journal entries, 1 dead letter: nothing wrong"


def test_what_is_wrong_is_grouped_and_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each under what it is about."""
    change(path, "UPDATE journal SET payload = x'00'", "DELETE FROM parts WHERE kind = 'reactor' AND generation = 7")
    assert run(monkeypatch, "doctor", "--store", f"sqlite:///{path}") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "accumulator public/b"
    assert lines[3].startswith("  wrong: entries 13 and 14 of its journal are damaged. The next start leaves out 14:")
    assert lines[5] == "reactor public/r"
    assert lines[-1] == "1 reactor, 2 accumulators, 2 journal entries, 1 dead letter: 2 things are wrong"


def test_programs_get_json(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The same facts."""
    change(path, "UPDATE dead_letters SET payload = x'c1'")
    assert run(monkeypatch, "doctor", "-o", "json", "--store", f"sqlite:///{path}") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["store"] == f"SQLite database {path}"
    assert found["schema"] == {"found": NEWEST, "known": NEWEST}
    assert (found["healthy"], found["reactors"], found["journal_entries"]) == (False, 1, 2)
    (only,) = found["findings"]
    assert (only["severity"], only["subject"]) == ("wrong", "accumulator public/a")


def test_a_store_that_is_not_there_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is not created."""
    assert run(monkeypatch, "doctor", "--store", f"sqlite:///{tmp_path}/none.db") == 1
    out = capsys.readouterr().out
    assert "has no schema yet" in out
    assert out.endswith("\n\n1 thing is wrong\n")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_a_finding_not_a_failure_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A monitor must be able to distinguish "damaged" from "down"."""
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no database" * 500)
    assert run(monkeypatch, "doctor", "--store", f"sqlite:///{damaged}", "-o", "json") == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["severity"], finding["subject"]) == ("wrong", "database")


def test_a_newer_schema_is_reported_and_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This Tidemill would not know what it means."""
    change(path, "PRAGMA user_version = 99")
    assert run(monkeypatch, "doctor", "--store", f"sqlite:///{path}") == 1
    assert f"is at schema version 99, and this Tidemill knows versions up to {NEWEST}" in capsys.readouterr().out


@pytest.mark.parametrize("mode", [0o644, 0o444])
def test_the_doctor_changes_nothing(path: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a byte, not a time, and no file beside it."""
    path.chmod(mode)
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.parent.iterdir()}
    assert run(monkeypatch, "doctor", "--store", f"sqlite:///{path}") == 0
    after = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.parent.iterdir()}
    assert after == before


def test_a_crashed_nodes_log_is_read_and_left_alone(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was committed last is only there."""
    crashed = tmp_path / "crashed.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("DELETE FROM dead_letters")
        connection.commit()
        for suffix in ("", "-wal"):
            Path(f"{crashed}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    before = [Path(f"{crashed}{suffix}").read_bytes() for suffix in ("", "-wal")]
    assert run(monkeypatch, "doctor", "--store", f"sqlite:///{crashed}") == 0
    assert "0 dead letters: nothing wrong" in capsys.readouterr().out
    assert [Path(f"{crashed}{suffix}").read_bytes() for suffix in ("", "-wal")] == before


async def test_the_doctor_may_look_while_a_node_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads one snapshot, and blocks no writer."""
    sample = single(durability="boundary", strategy="sequential")
    address = f"sqlite:///{tmp_path}/tidemill.db"
    async with tm.testing.node(address, load=sample.load) as node:
        for number in range(5):
            await node.push("a", number)
            assert await asyncio.to_thread(run, monkeypatch, "doctor", "--store", address) == 0
            await node.settle()
    assert sample.seen == [0, 1, 2, 3, 4]
    assert "things are wrong" not in capsys.readouterr().out


async def test_a_postgresql_database_is_examined(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First it has no schema, then it is healthy, then it is damaged."""
    url = await postgres.fresh_database()
    assert await asyncio.to_thread(run, monkeypatch, "doctor", "--store", url) == 1
    sample = single(durability="boundary", strategy="sequential")
    async with tm.testing.node(url, load=sample.load) as node:
        await node.push("a", 1)
        await node.settle()
        assert await asyncio.to_thread(run, monkeypatch, "doctor", "--store", url) == 0
    await postgres.execute("DELETE FROM tidemill.parts WHERE kind = 'accumulator'", url.rpartition("/")[2])
    assert await asyncio.to_thread(run, monkeypatch, "doctor", "--store", url) == 1
    assert "accumulator public/a\n  wrong: nothing is stored of it" in capsys.readouterr().out
