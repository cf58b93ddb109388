"""Stores on which two nodes ran one reactor, as versions did that knew no owners: it is found, and is not forgotten."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.contract.samples import NOON
from tests.service.damage import change, fill, look_at, rows
from tests.service.samples import Sample, pair, single
from tidemill.annotations.codec import build_codec, encode_msgpack
from tidemill.engine.audit_findings import Finding
from tidemill.engine.graphs.checkpoints.double_writes import find_double_writes, group_by_journal
from tidemill.engine.graphs.checkpoints.part_history import read_histories
from tidemill.engine.graphs.durability.checksums import snapshot_part
from tidemill.engine.graphs.durability.journal_blocks import JournalEntry, journal_checksum_seed, pack_block
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.graphs.snapshot import AccumulatorPart, ReactorPart, encode_stored
from tidemill.storage.graph_ports import JournalKey, PartFence, PartKey, SnapshotPart
from tidemill.storage.sqlite.graph_tables import SqliteCheckpoints

TWICE = "two nodes have run it at the same time: "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "tidemill.db"


async def run_on_two_nodes(path: Path, sample: Sample) -> None:
    """Let two nodes that know no owners run a reactor, and kill them."""
    write_fenced = SqliteCheckpoints._write_fenced

    async def acquire(self: ReactorOwnership, keys: Collection[PartKey]) -> None:
        self.fences |= {key: PartFence(key, 0) for key in keys}

    async def write(self: SqliteCheckpoints, writes: Any, fences: Collection[PartFence]) -> None:
        await write_fenced(self, writes, ())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReactorOwnership, "acquire", acquire)
        patch.setattr(SqliteCheckpoints, "_write_fenced", write)
        address = f"sqlite:///{path}"
        one, two = tm.testing.node(address, load=sample.load), tm.testing.node(address, load=sample.load)
        async with one, two:
            for node, name in [(one, "a"), (one, "a"), (one, "a"), (two, "b"), (one, "a")]:
                await node.push(name, 1)
                await node.settle()
                await node.advance("1s")
            for node in (one, two):
                node.fail_store(1_000)  # they die: nothing of their orderly end is written


def problems(found: list[Finding]) -> list[str]:
    """Return the subjects of double writes."""
    return [one.subject for one in found if one.severity == "wrong" and "wo nodes have run it" in one.sentence]


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_what_two_nodes_did_is_still_known_after_a_restart(path: Path, durability: Any) -> None:
    """G-20, G-31: snapshots of the next node erase the evidence; the store keeps a recovery, and the audit says so."""
    sample = pair(durability=durability)
    await run_on_two_nodes(path, sample)
    assert "reactor public/r" in problems((await look_at(path)).findings)
    for _ in range(2):  # and after another restart
        async with tm.testing.node(f"sqlite:///{path}", load=sample.load) as node:
            restored = [event for event in node.reactor("r").events() if event.action == "restored"]
            assert any(event.name == "r" and event.reason.startswith(TWICE) for event in restored)
            for number in range(5):
                await node.push("a", number)
                await node.settle()
                await node.advance("1s")
        report = await look_at(path)
        assert "reactor public/r" in problems(report.findings)
        assert report.problem_count


async def test_other_incomplete_restores_are_notes(path: Path) -> None:
    """G-20: what could not be restored once needs no action for ninety days, but it is not forgotten."""
    async with tm.testing.node(f"sqlite:///{path}", load=single(durability="interval").load) as node:
        await node.push("a", 1)
        await node.settle()
    async with tm.testing.node(f"sqlite:///{path}", load=[tm.Reactor("r", [batch_a()], durability="interval")]) as node:
        assert [event.action for event in node.reactor("r").events()] == ["restored"]
    (only,) = (await look_at(path)).findings
    assert (only.severity, only.subject) == ("note", "accumulator public/a")
    assert only.sentence.startswith("it was a passthrough and is a batch now: ")
    assert only.sentence.endswith(" It was restored so at 2026-01-01 00:00:00 UTC.")


def batch_a() -> tm.Accumulator:
    """Return a batch with the name of a passthrough."""

    @tm.batch(every="1s")
    def a(events: list[int]) -> int:
        return sum(events)

    return a


# -- signs

REACTOR, A, B = (PartKey("public", "reactor", "r"), *(PartKey("public", "accumulator", name) for name in "ab"))
Content = ReactorPart | AccumulatorPart


def stored(key: PartKey, generation: int, moment: int, content: Content) -> SnapshotPart:
    """Return an intact part."""
    return snapshot_part(key, generation, moment, NOON, b"digest", encode_stored(content))


def of_reactor(number: int = 0, *, series: str = "s", position: int = 9) -> ReactorPart:
    """Return a reactor's part that has seen `a` and `b`."""
    return ReactorPart(
        cache={"a": b"1", "b": b"2"},
        dirty=[],
        queue=[],
        consumed=[],
        firings=[],
        position=position,
        applied=0,
        series=series,
        number=number,
    )


def at(position: int) -> AccumulatorPart:
    """Return an accumulator's part at a journal position."""
    return AccumulatorPart(sequence=position, position=position)


def entries(name: str, *positions: int) -> list[JournalEntry]:
    """Return entries of a journal."""
    key = JournalKey("public", name)
    return [JournalEntry(key, position, b"") for position in positions]


def signs(parts: list[SnapshotPart], journal: list[JournalEntry] | None = None) -> list[tuple[PartKey, str]]:
    """Return the signs of double writes."""
    found = find_double_writes(read_histories(parts), group_by_journal(journal or []))
    return [(one.key, one.sign) for one in found]


@pytest.mark.parametrize(
    ("parts", "journal", "key", "sign"),
    [
        (
            [stored(A, 4, 9, at(3)), stored(A, 1, 8, at(3))],
            [],
            A,
            "generation 4 was written last, after generation 1, and does not follow it",
        ),
        (
            [stored(A, 4, 9, at(3)), stored(A, 3, 9, at(3))],
            [],
            A,
            "generations 3 and 4 were written at one moment",
        ),
        (
            [stored(A, 4, 9, at(3)), stored(A, 3, 8, at(5))],
            [],
            A,
            "its newest snapshot is at journal position 3, behind the one before it (5)",
        ),
        (
            [stored(A, 4, 9, at(7)), stored(A, 3, 8, at(5))],
            entries("a", 4, 5, 6, 7),
            A,
            "entries 4 and 5 of its journal lie before its older snapshot (position 5)",
        ),
        (
            [stored(REACTOR, 4, 9, of_reactor(6)), stored(REACTOR, 3, 8, of_reactor(7))],
            [],
            REACTOR,
            "its newest snapshot is at firing 6, behind the one before it (7)",
        ),
        (
            [stored(REACTOR, 1, 9, of_reactor(position=4)), stored(A, 1, 9, at(5))],
            [],
            REACTOR,
            "it has seen the journal up to 4, and accumulator public/a, written at the same moment, is at 5",
        ),
        (
            [stored(REACTOR, 1, 9, of_reactor())],
            [*entries("a", 10, 11), *entries("b", 11, 12)],
            REACTOR,
            "journal position 11 is taken by 'a' and by 'b'",
        ),
        (
            [stored(A, 1, 9, at(9))],
            [*entries("a", 10, 11, 12), *entries("a", 11, 12, 13)],
            A,
            "positions 11 and 12 of its journal are taken twice",
        ),
        ([], [*entries("a", 1), *entries("a", 1, 2)], A, "position 1 of its journal is taken twice"),
    ],
)
def test_each_sign_is_found(parts: list[SnapshotPart], journal: list[JournalEntry], key: PartKey, sign: str) -> None:
    """G-31."""
    assert signs(parts, journal) == [(key, sign)]


def test_what_one_node_writes_has_no_sign() -> None:
    """G-31: a new series starts at 0 again, and journals of one reactor interleave."""
    parts = [
        stored(REACTOR, 4, 9, of_reactor(1, series="t", position=7)),
        stored(REACTOR, 3, 8, of_reactor(7, position=5)),
        *(stored(A, 4, 9, at(7)), stored(A, 3, 8, at(5))),
        *(stored(B, 4, 9, at(6)), stored(B, 3, 8, at(2))),
    ]
    assert signs(parts, [*entries("a", 7, 9), *entries("b", 3, 6, 8)]) == []


def test_a_damaged_block_is_no_sign() -> None:
    """G-31: its positions may be what is damaged."""
    damaged = [msgspec.structs.replace(entry, is_intact=False) for entry in entries("a", 1, 2)]
    assert signs([], [*entries("a", 1), *damaged]) == []


def overlap_journal(path: Path) -> None:
    """Add a block to the journal of `b` that begins at the position at which the newest one ends: 14."""
    assert rows(path, "SELECT accumulator, position FROM journal") == [("b", 13), ("b", 14)]
    key, encode = JournalKey("public", "b"), build_codec(int).encode
    payloads = [encode_msgpack(("boundary", encode(value), 0, None)) for value in (200, 201)]
    block = pack_block(key, journal_checksum_seed(*key), [14, 15], payloads)
    values = ", ".join(f"x'{one.hex()}'" for one in (block.layout, block.checksum, block.payload))
    columns = "tenant, accumulator, position, layout, checksum, payload"
    change(path, f"INSERT INTO journal ({columns}) VALUES ('public', 'b', 15, {values})")


async def test_blocks_that_overlap_are_reported_and_no_event_of_them_is_lost(path: Path) -> None:
    """G-24, G-31, 0052: the database refuses only a second block at one position."""
    await fill(path)
    overlap_journal(path)
    sign = "position 14 of its journal is taken twice"
    found = [one for one in (await look_at(path)).findings if one.severity == "wrong"]
    assert [one.subject for one in found] == ["accumulator public/b"]
    assert found[0].sentence.startswith(f"{sign}. The next start applies every entry ")
    sample = pair(durability="boundary", strategy="sequential")
    async with tm.testing.node(f"sqlite:///{path}", load=sample.load) as node:
        await node.settle()
        restored = [one for one in node.reactor("r").events() if one.action == "restored"]
        assert [(one.name, one.reason.startswith(TWICE + sign)) for one in restored] == [("b", True)]
    assert [b for _, b in sample.seen][-3:] == [101, 200, 201]


def test_a_damaged_generation_is_no_sign() -> None:
    """G-31: its number may be what is damaged."""
    damaged = msgspec.structs.replace(stored(A, 1, 8, at(3)), payload=b"")
    assert signs([stored(A, 4, 9, at(3)), damaged]) == []
