"""A test sees every transaction of a memory store: the rows that it has changed, before and after."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.contract.access_samples import variable
from tests.contract.run_samples import creation, fire_row, make, run_row
from tests.contract.samples import NOON
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.testing.transactions import RowChange, observe_transactions
from tidemill.workflows.change import Refused


class Seen:
    """The transactions of a store, and what ends their observation."""

    def __init__(self, store: MemoryStore) -> None:
        self.transactions: list[list[RowChange]] = []
        self.end = observe_transactions(store.database, lambda changes: self.transactions.append(list(changes)))

    @property
    def tables(self) -> list[list[str]]:
        """The tables of the changed rows, transaction by transaction."""
        return [[change.table for change in changes] for changes in self.transactions]


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """An open store."""
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


async def test_a_row_is_seen_before_and_after(store: MemoryStore) -> None:
    seen = Seen(store)
    await store.variables.upsert(variable(name="size", value=1))
    await store.variables.upsert(variable(name="size", value=2))
    await store.variables.delete(variable().tenant, "size")
    changes = [change for (change,) in seen.transactions]
    values = [[row and row["value"] for row in (change.before, change.after)] for change in changes]
    assert values == [[None, "1"], ["1", "2"], ["2", None]]
    assert {change.table for change in changes} == {"variables"}


async def test_writes_that_share_a_transaction_are_seen_together(store: MemoryStore) -> None:
    seen = Seen(store)
    await asyncio.gather(*(store.variables.upsert(variable(name=name)) for name in "abc"))
    assert seen.tables == [["variables"] * 3]


async def test_what_was_rolled_back_is_not_seen(store: MemoryStore) -> None:
    """W-2: a change that is refused has written rows inside a savepoint; the transaction around it commits none."""
    await make(store, creation(run_row("r1"), fire=fire_row("r1", slot=NOON)))
    seen = Seen(store)
    refused = await store.runs.apply(creation(run_row("r2"), fire=fire_row("r2", slot=NOON)))
    assert isinstance(refused, Refused)
    assert seen.transactions == []


async def test_an_error_of_the_observer_is_the_error_of_the_writer(store: MemoryStore) -> None:
    def refuse(changes: object) -> None:
        raise AssertionError("two runs have one slot")

    observe_transactions(store.database, refuse)
    with pytest.raises(AssertionError, match="two runs have one slot"):
        await store.variables.upsert(variable())


async def test_nothing_is_seen_after_the_end(store: MemoryStore) -> None:
    seen = Seen(store)
    seen.end()
    await store.variables.upsert(variable())
    assert seen.transactions == []
    assert store.database.connection.execute("SELECT name FROM temp.sqlite_schema").fetchall() == []


async def test_a_run_is_seen_through_its_states() -> None:
    """What a simulated cluster checks after every commit: no state is skipped, and none comes back."""
    flow = tm.Workflow("flow")

    @flow.task
    def task() -> int:
        return 1

    async with tm.testing.node(load=[flow]) as node:
        seen = Seen(node.database)
        await (await node.start("flow")).wait()
        seen.end()
    runs = [change for changes in seen.transactions for change in changes if change.table == "runs"]
    assert [change.before for change in runs] == [None, *(change.after for change in runs[:-1])]
    states = [change.after["state"] for change in runs if change.after is not None]
    assert list(dict.fromkeys(states)) == ["running", "success"]
