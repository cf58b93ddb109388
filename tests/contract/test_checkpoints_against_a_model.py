"""Checkpoints hold what a dictionary would hold, after any operations in any order."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.contract.conftest import ContractDatabase, MemoryDatabase, SqliteFile
from tests.contract.samples import block, journal, key, part
from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import HighWaterMarks, JournalBlock, JournalKey, JournalTrim, PartKey, SnapshotPart
from tidemill.testing.faults.stores import fail_next

OWNERS = [key(name, tenant) for tenant in ("a", "b") for name in ("x", "y")]
JOURNALS = [journal(name, tenant) for tenant in ("a", "b") for name in ("x", "y")]

owners = st.sets(st.sampled_from(OWNERS), max_size=4)
positions = st.integers(0, 12)
appends = st.lists(st.tuples(st.sampled_from(JOURNALS), positions), max_size=4)
covers = st.lists(st.tuples(st.sampled_from(JOURNALS), positions), max_size=2)


class CheckpointMachine(RuleBasedStateMachine):
    """A store and its model, which get the same operations."""

    database: ContractDatabase

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.parts: dict[tuple[PartKey, int], SnapshotPart] = {}
        self.journal: dict[tuple[JournalKey, int], JournalBlock] = {}
        self.moment = 0

    def make_database(self) -> ContractDatabase:
        """Return the database under test."""
        raise NotImplementedError

    @initialize()
    def open_store(self) -> None:
        self.database = self.make_database()
        self.store = self.database.store()
        self.runner.run(self.store.open())

    @rule(
        owners=owners, generation=st.integers(1, 4), covered=covers, payload=st.binary(max_size=3), fails=st.booleans()
    )
    def save(
        self, owners: set[PartKey], generation: int, covered: list[JournalTrim], payload: bytes, fails: bool
    ) -> None:
        self.moment += 1
        parts = [part(generation, of=owner, moment=self.moment, payload=payload) for owner in owners]
        fail_next(self.store, int(fails))
        try:
            self.runner.run(self.store.checkpoints.save(parts, [JournalTrim(*one) for one in covered]))
        except StoreError:
            assert fails
            return
        self.parts |= {(one.key, generation % 2): one for one in parts}
        for forgotten, limit in covered:
            for at in [at for at in self.journal if at[0] == forgotten and at[1] <= limit]:
                del self.journal[at]

    @rule(appends=appends)
    def append(self, appends: list[tuple[JournalKey, int]]) -> None:
        taken = len(set(appends)) < len(appends) or any(at in self.journal for at in appends)
        entries = [block(position, of) for of, position in appends]
        try:
            self.runner.run(self.store.checkpoints.append(entries))
        except StoreError:
            assert taken
            return
        assert not taken
        self.journal |= {(one.key, one.position): one for one in entries}

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.close())
        self.store = self.database.store()
        self.runner.run(self.store.open())

    @invariant()
    def store_and_model_agree(self) -> None:
        async def read() -> None:
            checkpoints = self.store.checkpoints
            assert await checkpoints.read_all_parts() == sorted(
                self.parts.values(), key=lambda one: (one.key, -one.moment)
            )
            assert await checkpoints.read_all_blocks() == [self.journal[at] for at in sorted(self.journal)]
            found = await checkpoints.read_parts(OWNERS[:2])
            assert [one.moment for one in found] == sorted((one.moment for one in found), reverse=True)
            moments = [one.moment for one in self.parts.values()]
            assert await checkpoints.read_high_water_marks() == HighWaterMarks(
                max(moments, default=0), max((at[1] for at in self.journal), default=0)
            )

        self.runner.run(read())

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.runner.run(self.store.close())
        self.runner.close()


class MemoryMachine(CheckpointMachine):
    """On memory."""

    def make_database(self) -> ContractDatabase:
        return MemoryDatabase()


class SqliteMachine(CheckpointMachine):
    """On a file."""

    def make_database(self) -> ContractDatabase:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteFile(Path(self.folder.name) / "tidemill.db")

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


@pytest.mark.parametrize("machine", [MemoryMachine, SqliteMachine])
def test_checkpoints_hold_what_a_dictionary_would(machine: type[CheckpointMachine]) -> None:
    """G-23, G-24: nothing half written, nothing lost, whichever writes failed in between."""
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=20))
