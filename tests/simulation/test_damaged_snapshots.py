"""Damage to what is stored: noticed, said aloud, and answered with the generation before; never silently empty."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tidemill as tm
from tidemill.storage.graph_ports import JournalBlock, JournalKey, PartKey, SnapshotPart
from tidemill.storage.queries import build_part
from tidemill.storage.sqlite.run_rows import from_micros

REACTOR = PartKey("public", "reactor", "r")
ACCUMULATOR = PartKey("public", "accumulator", "a")
FEW = settings(max_examples=max(1, settings().max_examples // 3))


class Total(tm.Boundary):
    """A running sum."""

    sum: int = 0


def definitions(durability: Any = "interval") -> list[Any]:
    """Return reactors `r` over `a` (running state) and `b`, and `other` over `far`."""

    @tm.passthrough(state=Total)
    def a(event: int, state: Total) -> Total:
        return Total(state.sum + event)

    @tm.passthrough
    def b(event: int) -> int:
        return event

    @tm.passthrough
    def far(event: int) -> int:
        return event

    @tm.passthrough
    def away(event: int) -> int:
        return event

    return [
        tm.Reactor("r", [a, b], when="all", strategy="sequential", durability=durability),
        tm.Reactor("other", [far, away], when="all", durability=durability),
    ]


def rows(node: tm.testing.TestNode) -> sqlite3.Connection:
    """Return the connection to the rows of a memory store."""
    connection: sqlite3.Connection = vars(node.database)["database"].connection
    return connection


def put_part(node: tm.testing.TestNode, place: SnapshotPart, part: SnapshotPart) -> None:
    """Write a part in the place of another one, whether it belongs there or not."""
    rows(node).execute(
        "UPDATE parts SET generation = ?, moment = ?, digest = ?, checksum = ?, payload = ? "
        "WHERE tenant = ? AND kind = ? AND name = ? AND slot = ?",
        (part.generation, part.moment, part.digest, part.checksum, part.payload, *place.key, place.generation % 2),
    )


async def blocks_of_b(node: tm.testing.TestNode) -> list[JournalBlock]:
    """Return the journal of `b`."""
    return await node.database.checkpoints.read_blocks([JournalKey("public", "b")])


def put_block(node: tm.testing.TestNode, block: JournalBlock) -> None:
    """Write a block of `b` in place of the one at its position."""
    rows(node).execute(
        "UPDATE journal SET layout = ?, checksum = ?, payload = ? WHERE accumulator = 'b' AND position = ?",
        (block.layout, block.checksum, block.payload, block.position),
    )


async def two_generations(node: tm.testing.TestNode) -> None:
    """Write two checkpoints: with a=1, then with a=3."""
    for value in (1, 2):
        await node.push("a", value)
        await node.push("far", value)
        await node.settle()


def generations(node: tm.testing.TestNode, key: PartKey) -> list[SnapshotPart]:
    """Return a part's generations, newest first."""
    found = rows(node).execute(
        "SELECT generation, moment, taken_at, digest, checksum, payload FROM parts "
        "WHERE tenant = ? AND kind = ? AND name = ? ORDER BY moment DESC",
        key,
    )
    return [
        build_part(*key, generation, moment, from_micros(taken_at), *rest)
        for generation, moment, taken_at, *rest in found
    ]


Damage = Callable[[SnapshotPart, tm.testing.TestNode], SnapshotPart]


def flip(field: str, position: int, bit: int) -> Damage:
    def damage(part: SnapshotPart, node: tm.testing.TestNode) -> SnapshotPart:
        data = bytearray(getattr(part, field))
        data[position % len(data)] ^= 1 << bit
        return replace(part, **{field: bytes(data)})

    return damage


def truncate(field: str, length: int) -> Damage:
    def damage(part: SnapshotPart, node: tm.testing.TestNode) -> SnapshotPart:
        data = getattr(part, field)
        return replace(part, **{field: data[: length % len(data)]})

    return damage


def zero(field: str) -> Damage:
    return lambda part, node: replace(part, **{field: bytes(len(getattr(part, field)) or 1)})


def transplant(kind: str, *, whole: bool) -> Damage:
    def damage(part: SnapshotPart, node: tm.testing.TestNode) -> SnapshotPart:
        name = "other" if kind == "reactor" else "far"
        donor, *_ = generations(node, PartKey("public", kind, name))
        return replace(donor, key=part.key) if whole else replace(part, payload=donor.payload)

    return damage


def other_tenants(part: SnapshotPart, node: tm.testing.TestNode) -> SnapshotPart:
    donor, *_ = generations(node, PartKey("acme", part.key.kind, part.key.name))
    return replace(donor, key=part.key)


def older_payload(part: SnapshotPart, node: tm.testing.TestNode) -> SnapshotPart:
    return replace(part, payload=generations(node, part.key)[1].payload)


FIELDS = st.sampled_from(["payload", "checksum", "digest"])
DAMAGES = st.one_of(
    st.builds(flip, FIELDS, st.integers(0, 10_000), st.integers(0, 7)),
    st.builds(flip, FIELDS, st.integers(0, 10_000), st.integers(0, 7)),
    st.builds(truncate, FIELDS, st.integers(0, 10_000)),
    st.builds(zero, FIELDS),
    st.builds(transplant, st.sampled_from(["reactor", "accumulator"]), whole=st.booleans()),
    st.sampled_from([other_tenants, older_payload]),
)


async def damaged(damage: Damage, key: PartKey, *, both: bool = False) -> tuple[tm.ReactorState, list[Any], int]:
    """Damage one part, or both generations of it; return what the next life has and says, and how `a` counts on."""
    load = definitions()
    async with tm.testing.node(store="memory://", load=load) as node:
        for definition in load:
            await node.load(definition, tenant="acme")
        await node.push("a", 50, tenant="acme")
        await two_generations(node)
        stored = generations(node, key)
        assert len(stored) == 2
        for part in stored if both else stored[:1]:
            broken = damage(part, node)
            if broken == part:  # the donor was just the same
                broken = flip("payload", 0, 0)(part, node)
            put_part(node, part, broken)
        node = await node.crash()
        state, events = node.reactor("r").state(), node.reactor("r").events()
        assert node.reactor("other").state().cache == {"far": 2}
        assert node.reactor("r", tenant="acme").state().cache == {"a": {"sum": 50}}
        sequence = (await node.push("a", 10)).sequence
        await node.settle()
        await node.settle()
        node = await node.crash()
        assert node.reactor("r").state().cache["a"]["sum"] >= 10
        assert len(node.reactor("r").events()) <= len(events) + 1
        return state, events, sequence


@FEW
@given(damage=DAMAGES, key=st.sampled_from([REACTOR, ACCUMULATOR]))
def test_the_generation_before_is_used_and_said(damage: Damage, key: PartKey) -> None:
    """G-23, fault 60: everything of one moment, one checkpoint earlier, with a Recovery "restored"."""
    state, events, sequence = asyncio.run(damaged(damage, key))
    assert state.cache == {"a": {"sum": 1}}
    assert [(event.action, event.component, event.name) for event in events] == [("restored", key.kind, key.name)]
    assert "damaged" in events[0].reason
    assert sequence == 2


@FEW
@given(damage=DAMAGES)
def test_two_damaged_generations_start_empty_and_say_so(damage: Damage) -> None:
    """G-23: never silently empty."""
    state, events, _ = asyncio.run(damaged(damage, REACTOR, both=True))
    assert (state.cache, state.dirty) == ({}, {"a": False, "b": False})
    assert [(event.action, event.name) for event in events] == [("restored", "r")]
    assert "empty" in events[0].reason


async def test_damage_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """G-23: said aloud."""
    caplog.set_level(logging.ERROR)
    await damaged(zero("payload"), REACTOR)
    assert any(record.levelno == logging.ERROR for record in caplog.records)


async def test_generations_that_changed_places_are_both_refused() -> None:
    """G-23: a payload belongs to one generation; with both swapped there is none left."""
    async with tm.testing.node(store="memory://", load=definitions()) as node:
        await two_generations(node)
        new, old = generations(node, REACTOR)
        put_part(node, new, replace(new, payload=old.payload, checksum=old.checksum))
        put_part(node, old, replace(old, payload=new.payload, checksum=new.checksum))
        node = await node.crash()
        assert node.reactor("r").state().cache == {}
        assert "empty" in node.reactor("r").events()[0].reason


# -- the journal


async def with_journal(damage: Callable[[JournalBlock], JournalBlock], which: int) -> tuple[list[int], list[Any]]:
    """Damage one of the entries of a journal; return the sums that are restored of it, and what is said."""
    async with tm.testing.node(store="memory://", load=definitions("boundary")) as node:
        await node.reactor("r").pause()
        for value in (1, 2, 4):
            await node.push("b", value)
        put_block(node, damage((await blocks_of_b(node))[which]))
        node = await node.crash()
        return node.probe.graphs.queued_values("r"), node.reactor("r").events()


def flip_entry(field: str, position: int, bit: int) -> Callable[[JournalBlock], JournalBlock]:
    def damage(entry: JournalBlock) -> JournalBlock:
        data = bytearray(getattr(entry, field))
        data[position % len(data)] ^= 1 << bit
        return replace(entry, **{field: bytes(data)})

    return damage


ENTRY_FIELDS = st.sampled_from(["payload", "checksum"])


@FEW
@given(
    damage=st.builds(flip_entry, ENTRY_FIELDS, st.integers(0, 1000), st.integers(0, 7)),
    which=st.integers(0, 2),
)
def test_a_damaged_entry_is_left_out_aloud_and_others_are_replayed(damage: Any, which: int) -> None:
    """G-23, G-24: in their order."""
    queue, events = asyncio.run(with_journal(damage, which))
    assert queue == [value for index, value in enumerate((1, 2, 4)) if index != which]
    assert [(event.action, event.name) for event in events] == [("restored", "b")]


BLOCK_FIELDS = st.sampled_from(["payload", "layout", "checksum"])


@FEW
@given(damage=st.builds(flip_entry, BLOCK_FIELDS, st.integers(0, 1000), st.integers(0, 7)))
def test_of_a_damaged_block_nothing_is_replayed_in_silence(damage: Any) -> None:
    """G-23, G-24: its events are left out aloud, those of other commits are there."""

    async def run() -> tuple[list[int], list[Any]]:
        async with tm.testing.node(store="memory://", load=definitions("boundary")) as node:
            await node.reactor("r").pause()
            await node.push("b", 1)
            await asyncio.gather(*(node.push("b", value) for value in (2, 4, 8)))
            await node.push("b", 16)
            blocks = await blocks_of_b(node)
            assert [one.position for one in blocks] == [1, 4, 5]
            put_block(node, damage(blocks[1]))
            node = await node.crash()
            return node.probe.graphs.queued_values("r"), node.reactor("r").events()

    queue, events = asyncio.run(run())
    assert queue == [1, 16]
    assert {(event.action, event.name) for event in events} == {("restored", "b")}


async def test_a_damaged_snapshot_is_made_up_for_by_the_journal() -> None:
    """G-23, G-24: under "boundary" the generation before, and everything acknowledged since, are there."""
    async with tm.testing.node(store="memory://", load=definitions("boundary")) as node:
        await two_generations(node)
        await node.push("a", 4)
        part, *_ = generations(node, REACTOR)
        put_part(node, part, zero("payload")(part, node))
        node = await node.crash()
        await node.push("b", 1)
        await node.settle()
        (firing,) = node.reactor("r").firings()
        assert (await node.push("a", 8)).sequence == 4
        assert any("damaged" in event.reason for event in node.reactor("r").events())
    assert firing.inputs == {"a": Total(7), "b": 1}


# -- in a file


@pytest.mark.parametrize("change", ["payload = zeroblob(length(payload))", "checksum = x'00'", "digest = x'00'"])
async def test_damage_in_a_file_is_noticed_too(tmp_path: Path, change: str) -> None:
    """G-23: SQLite stores what it is given; the checksum is ours."""
    path = tmp_path / "tidemill.db"
    async with tm.testing.node(store=f"sqlite:///{path}", load=definitions()) as node:
        await two_generations(node)
        await node.crash()
    newest = "(SELECT max(moment) FROM parts WHERE kind = 'reactor' AND name = 'r')"
    with sqlite3.connect(path) as connection:
        query = f"UPDATE parts SET {change} WHERE kind = 'reactor' AND name = 'r' AND moment = {newest}"
        assert connection.execute(query).rowcount == 1
    connection.close()
    async with tm.testing.node(store=f"sqlite:///{path}", load=definitions()) as node:
        assert node.reactor("r").events()[0].action == "restored"
        # The newest generation is that of the orderly end, which held what the one before it holds.
        assert node.reactor("r").state().cache == {"a": {"sum": 3}}
