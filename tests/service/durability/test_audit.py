"""The audit of a store: silent about what real nodes leave behind, precise about what was done to it since."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.damage import SAME_DAY, change, copy, fill, look_at, rows
from tests.service.samples import Sample, pair
from tidemill.engine.audit_findings import Finding
from tidemill.engine.graphs.audit import journals
from tidemill.engine.graphs.audit.report import audit_rows, audit_store
from tidemill.storage.graph_ports import PartKind
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.storage.tables.graphs import StoredDeadLetter

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEWEST = "generation = (SELECT max(generation) FROM parts)"
TAIL = (
    "A node that is running has it all in memory: let it run, its next two snapshots replace the damaged one. "
    "Check the disk, and restore a backup if that matters."
)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store with a journal, as kill -9 leaves it: snapshots 7 and 8, entries 13 and 14 of `b`."""
    path = tmp_path / "tidemill.db"
    await fill(path)
    return path


async def findings(path: Path) -> list[str]:
    """Return what is found, in words."""
    return [str(one) for one in (await look_at(path)).findings]


# -- silence


@pytest.mark.parametrize("durability", ["none", "interval", "fire", "boundary"])
async def test_nothing_is_found_in_what_a_killed_node_left(tmp_path: Path, durability: str) -> None:
    await fill(tmp_path / "tidemill.db", durability)
    found = await look_at(tmp_path / "tidemill.db")
    assert found.findings == []
    assert (found.reactors, found.accumulators) == ((0, 0) if durability == "none" else (1, 2))
    assert found.dead_letters == 1


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_found_at_any_moment_of_a_nodes_lives(tmp_path: Path, durability: str, seed: int) -> None:
    """Pushes, pauses, failures of the store, restarts and crashes in any order leave nothing to complain of."""
    rng = random.Random(f"{durability} {seed}")
    sample = pair(durability=durability, strategy="sequential")
    other = sharing(sample, rng.choice(["none", "interval", "fire", "boundary"]))
    living, seen = tmp_path / "living.db", tmp_path / "seen.db"
    async with tm.testing.node(f"sqlite:///{living}", load=sample.load) as first:
        node = first
        for _ in range(40):
            node = await step(node, rng, other)
            copy(living, seen)
            assert [one for one in (await look_at(seen)).findings if one.severity == "wrong"] == []


def sharing(sample: Sample, durability: Any) -> list[Any]:
    """Return reactor `s`, which takes `a` too, a batch and a window."""

    @tm.batch(every="1s", max_size=3)
    def c(events: list[int]) -> int:
        return sum(events)

    w = tm.window("w", int, capacity=2)
    reactor = tm.Reactor("s", [sample.reactor.accumulators[0], c, w], durability=durability)
    graph = tm.Graph("h", reactor=reactor)

    @graph.node
    def total(c: int | None, w: list[int] | None) -> int:
        return 0

    return [reactor, graph]


async def step(node: Any, rng: random.Random, other: list[Any]) -> Any:
    """Let something happen, and return the node that lives afterwards."""
    has_other = node.probe.graphs.is_running("s")
    match rng.randrange(12):
        case 0:
            return await node.crash()
        case 1:
            await node.advance(rng.choice(["100ms", "1s"]))
        case 2:
            await node.settle()
        case 3:
            await node.push(rng.choice("ab"), "no number")
        case 4:
            reactor = node.reactor("r")
            await (reactor.resume() if reactor.state().paused else reactor.pause())
            await node.settle()
        case 5:
            node.fail_store(rng.randrange(1, 4))
            await node.push("a", 1)
            await node.advance("1s")  # the checkpointer rests after a failure, and then succeeds
            node.fail_store(0)
        case 6 if not has_other:
            for one in other:
                await node.load(one)
        case 6:
            await node.unload("graph:h")
            await node.unload("reactor:s")
        case 7 if node.reactor("r").state().cache:
            await node.reactor("r").force_fire()
        case 8 if has_other:
            await node.push(rng.choice("cw"), rng.randrange(9))
        case _:
            await node.push(rng.choice("ab"), rng.randrange(9))
    return node


async def test_a_store_that_was_never_used_is_fine() -> None:
    store = MemoryStore()
    await store.open_read_only()
    found = await audit_store(store, NOW)
    assert found.findings == []
    assert found.summary == "0 reactors, 0 accumulators, 0 journal entries, 0 dead letters"
    assert found.last_written is None


# -- snapshots


async def test_a_damaged_newest_snapshot_names_what_is_used_and_what_is_lost(path: Path) -> None:
    change(path, f"UPDATE parts SET payload = zeroblob(9) WHERE kind = 'accumulator' AND name = 'b' AND {NEWEST}")
    assert await findings(path) == [
        "accumulator public/b: its newest snapshot is damaged (generation 8 of 2026-01-01 00:00:06 UTC). The next "
        "start uses generation 7 of 2026-01-01 00:00:05 UTC instead, and what was written together with it steps back "
        "too: what happened in the 1 second between them is lost, save for what 2 journal entries bring back. " + TAIL
    ]


async def test_a_damaged_older_snapshot_costs_nothing(path: Path) -> None:
    change(path, f"UPDATE parts SET moment = moment - 1 WHERE kind = 'reactor' AND NOT {NEWEST}")
    assert await findings(path) == [
        "reactor public/r: its older snapshot is damaged (generation 7 of 2026-01-01 00:00:05 UTC); the newest, "
        "generation 8 of 2026-01-01 00:00:06 UTC, is intact. The next start uses that one, and nothing is lost; the "
        "next snapshot replaces the damaged one. Check the disk."
    ]


async def test_two_damaged_snapshots_leave_nothing(path: Path) -> None:
    change(path, "UPDATE parts SET checksum = zeroblob(16) WHERE kind = 'reactor'")
    assert await findings(path) == [
        "reactor public/r: its snapshot is damaged (generation 8 of 2026-01-01 00:00:06 UTC and generation 7 of "
        "2026-01-01 00:00:05 UTC) and there is no other. At the next start it is empty. "
        "Check the disk, and restore a backup if that matters."
    ]


async def test_a_generation_that_is_missing_is_noticed(path: Path) -> None:
    change(path, f"DELETE FROM parts WHERE kind = 'reactor' AND NOT {NEWEST}")
    assert await findings(path) == [
        "reactor public/r: only generation 8 of 2026-01-01 00:00:06 UTC is stored, and the one before it is missing. "
        "The next start uses it and nothing is lost, but should it be damaged, there is nothing to fall back on. "
        "The next snapshot of a running node repairs that; find out who deleted rows of this store."
    ]


async def test_a_clock_that_is_wrong_is_noticed(path: Path) -> None:
    """Also a time that no calendar holds: it is not under the checksum."""
    change(path, f"UPDATE parts SET taken_at = {2**62} WHERE kind = 'reactor' AND {NEWEST}")
    change(path, f"UPDATE parts SET taken_at = 7 WHERE kind = 'reactor' AND NOT {NEWEST}")
    future, past = await findings(path)
    assert future.startswith("reactor public/r: generation 8 was taken at 9999-12-31 23:59:59 UTC, ")
    assert past == (
        "reactor public/r: generation 7 was taken at 1970-01-01 00:00:00 UTC, before there was a Tidemill. A clock is "
        "wrong, or the row was changed. It is used all the same, and nothing is lost; set the clock of the node, or of "
        "this machine."
    )


async def test_an_accumulator_whose_snapshots_are_gone_is_missed(path: Path) -> None:
    change(path, "DELETE FROM parts WHERE name = 'a'")
    assert await findings(path) == [
        "accumulator public/a: nothing is stored of it, though generation 8 of 2026-01-01 00:00:06 UTC of reactor "
        "public/r was written together with it. At the next start its numbering, its running state, what it holds and "
        "how far its source was read are lost: a source is read from its beginning. Restore a backup."
    ]


async def test_a_snapshot_older_than_its_reactors_is_noticed(path: Path) -> None:
    """As if a part of the tables came from a backup."""
    change(path, f"DELETE FROM parts WHERE name = 'a' AND {NEWEST}")
    found = await findings(path)
    assert found[1].startswith(
        "accumulator public/a: its newest snapshot, generation 7 of 2026-01-01 00:00:05 UTC, is older than generation "
        "8 of 2026-01-01 00:00:06 UTC of reactor public/r, which was written together with a newer one. "
    )
    assert found[0].startswith("accumulator public/a: only generation 7 of 2026-01-01 00:00:05 UTC is stored, ")


# -- journals


async def test_a_damaged_entry_that_is_needed_is_a_lost_event(path: Path) -> None:
    assert rows(path, "SELECT accumulator, position FROM journal") == [("b", 13), ("b", 14)]
    change(path, "UPDATE journal SET payload = zeroblob(3) WHERE position = 14")
    assert await findings(path) == [
        "accumulator public/b: entry 14 of its journal is damaged. The next start leaves out 14: 1 acknowledged event "
        "of it would be lost. A node that is running has them in memory: let it run until it has written its next two "
        "snapshots. Check the disk, and restore a backup if that matters."
    ]


async def test_a_damaged_entry_that_a_snapshot_holds_costs_nothing_yet(path: Path) -> None:
    change(path, "UPDATE journal SET checksum = zeroblob(4) WHERE position = 13")
    (only,) = await findings(path)
    assert "The newest snapshot holds all of that already: nothing is lost unless it is damaged too." in only


async def test_an_entry_that_is_missing_between_snapshots_is_noticed(path: Path) -> None:
    change(path, "DELETE FROM journal WHERE position = 13")
    assert await findings(path) == [
        "accumulator public/b: entry 13 of its journal is missing between its two snapshots, positions 12 to 13. The "
        "next start uses the newest snapshot and loses nothing. Should that be damaged, they could not be brought "
        "back. The next two snapshots of a running node repair it; find out who deleted rows."
    ]


async def test_entries_that_no_start_would_read_are_noticed(tmp_path: Path, path: Path) -> None:
    """As if positions had started again: acknowledged, and lost."""
    change(path, "UPDATE journal SET position = 1 WHERE position = 14")
    found = await findings(path)
    assert any("entries 1 of its journal lie before its older snapshot (position 12)" in one for one in found)


async def test_entries_without_an_owner_are_a_note(path: Path) -> None:
    change(path, "DELETE FROM parts")
    (only,) = (await look_at(path)).findings
    assert only.severity == "note"
    assert only.sentence.startswith("2 journal entries wait for it, and no snapshot of it is stored.")


async def test_a_journal_that_nothing_shortens_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "JOURNAL_LENGTH_LIMIT", 0)
    (only,) = await findings(path)
    assert only.startswith("accumulator public/b: its journal has 1 entries after its newest snapshot. Nothing is lost")


# -- letters and pauses


async def test_a_letter_that_cannot_be_read_is_noticed(path: Path) -> None:
    change(path, "UPDATE dead_letters SET payload = x'c1'")
    (only,) = await findings(path)
    assert only.startswith("accumulator public/a: dead letter 0")
    assert "of 2026-01-01 00:00:06 UTC cannot be read (MessagePack data is malformed" in only


def letter(owner: PartKind, at: datetime = NOW) -> StoredDeadLetter:
    """Return a letter of something that nothing else is stored of."""
    payload = b"\x83\xa4kind\xa5event\xa5error\xa1e\xa8attempts\x01"
    return StoredDeadLetter(id="01", tenant="public", owner=owner, source="gone", at=at, payload=payload)


def test_letters_of_something_long_unknown_are_a_note() -> None:
    assert audit_rows([], [], [letter("reactor")], [], NOW + timedelta(days=3)) == []
    assert audit_rows([], [], [letter("reactor")], [], NOW + timedelta(days=9)) == [
        Finding(
            "note",
            "reactor public/gone",
            "1 dead letter of it, the newest 9 days old, and nothing else of it is stored. They are shown again when "
            "something of that name is loaded; if it was renamed, they stay.",
        )
    ]


def test_letters_of_no_kind_and_of_the_future_are_wrong() -> None:
    found = audit_rows([], [], [letter("graph", NOW + timedelta(hours=2))], [], NOW)
    assert [one.sentence.partition(".")[0] for one in found] == [
        "dead letter 01 belongs to nothing of a known kind",
        "dead letter 01 is of 2026-01-01 02:00:00 UTC, 2 hours from now",
    ]


async def test_pauses_are_notes(path: Path) -> None:
    change(path, "INSERT INTO pauses VALUES ('public', 'gone'), ('public', 'r')")
    found = (await look_at(path, SAME_DAY + timedelta(days=3))).findings
    assert [(one.severity, one.subject) for one in found] == [
        ("note", "reactor public/gone"),
        ("note", "reactor public/r"),
    ]
    assert found[0].sentence.startswith("it is paused, and nothing else is stored of it.")
    assert "it is paused, and its newest snapshot is 3 days old" in found[1].sentence


async def test_damage_that_the_database_finds_itself_comes_first(path: Path) -> None:
    (root,), *_ = rows(path, "SELECT rootpage FROM sqlite_master WHERE name = 'recoveries'")
    size = rows(path, "PRAGMA page_size")[0][0]
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * 100)
    first, *_ = (await look_at(path)).findings
    assert (first.severity, first.subject) == ("wrong", "database")
