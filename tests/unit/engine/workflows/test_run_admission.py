"""Run admission: first come, first served, within max_active_runs, pauses, and the limit of a backfill."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from tests.unit.engine.workflows.builders import run_row
from tidemill.engine.workflows.leader.run_admission import RunAdmission
from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState


def queued(id: str, max_active: int = 1, backfill: str | None = None) -> RunRow:
    """Return a queued run."""
    return run_row(id, RunState.QUEUED, max_active=max_active, backfill=backfill)


def open_admission() -> RunAdmission:
    """Return an admission that knows all active runs."""
    admission = RunAdmission()
    admission.is_open = True
    return admission


def begin(admission: RunAdmission, run: RunRow) -> RunRow:
    """Admit a queued run; return it as it runs."""
    assert admission.may_begin(run)
    running = replace(run, state=RunState.RUNNING)
    admission.put(running)
    return running


def test_no_more_runs_begin_than_the_workflow_allows() -> None:
    """max_active_runs: the next begins when one ends, in the order in which they were created."""
    admission = open_admission()
    runs = [queued(f"r{number}", max_active=2) for number in range(4)]
    for run in runs:
        admission.put(run)
    first, _ = [begin(admission, run) for run in runs[:2]]
    assert not admission.may_begin(runs[2])
    assert admission.running_count("public", "flow") == 2
    assert admission.next_runs("public", "flow") == []
    admission.remove(first.id)
    assert admission.next_runs("public", "flow") == ["r2"]
    assert admission.may_begin(runs[2])


def test_a_paused_workflow_begins_nothing() -> None:
    """Also if there is room; runs of other workflows do."""
    admission = open_admission()
    admission.paused = {("public", "flow")}
    paused, *others = queued("r1"), replace(queued("r2"), workflow="other"), replace(queued("r3"), tenant="acme")
    for run in [paused, *others]:
        admission.put(run)
    assert not admission.may_begin(paused)
    assert admission.is_paused(paused)
    assert all(admission.may_begin(run) for run in others)


def test_a_run_that_is_not_queued_does_not_begin() -> None:
    """It has begun, or has ended."""
    admission = open_admission()
    assert not admission.may_begin(run_row(state=RunState.RUNNING))
    assert not admission.may_begin(run_row(state=RunState.CANCELLED))


def test_a_backfill_keeps_to_its_own_limit() -> None:
    """Within the limit of the workflow; a backfill whose limit is unknown runs one at a time."""
    admission = open_admission()
    admission.backfill_limits["b"] = 2
    runs = [queued(f"b{number}", max_active=9, backfill="b") for number in range(3)]
    manual = queued("c", max_active=9)
    for run in [*runs, manual]:
        admission.put(run)
    assert admission.next_runs("public", "flow") == ["b0", "b1", "c"]
    begin(admission, runs[0])
    running = begin(admission, runs[1])
    assert not admission.may_begin(runs[2])
    assert admission.may_begin(manual)
    assert admission.next_runs("public", "flow") == ["c"]
    admission.remove(running.id)
    assert admission.next_runs("public", "flow") == ["b2", "c"]
    unknown = [queued(f"u{number}", max_active=9, backfill="unknown") for number in range(2)]
    for run in unknown:
        admission.put(run)
    begin(admission, unknown[0])
    assert not admission.may_begin(unknown[1])


def test_a_begin_that_was_not_written_is_taken_back() -> None:
    """The change was refused: the run is queued again."""
    admission = open_admission()
    first, second = queued("r1", max_active=2), queued("r2", max_active=2)
    admission.put(first)
    admission.put(second)
    begin(admission, first)
    assert admission.next_runs("public", "flow") == ["r2"]
    admission.put(first)
    assert admission.running_count("public", "flow") == 0
    assert admission.next_runs("public", "flow") == ["r1", "r2"]


def test_a_queued_run_that_is_removed_does_not_wait() -> None:
    """It was cancelled before it began."""
    admission = open_admission()
    admission.put(queued("r1"))
    admission.remove("r1")
    assert admission.next_runs("public", "flow") == []


def test_no_run_begins_before_all_active_ones_are_known() -> None:
    """A new leader reads them first: older ones may wait, or run."""
    admission = RunAdmission()
    admission.put(queued("r1"))
    assert not admission.may_begin(queued("r1"))
    admission.is_open = True
    assert admission.may_begin(queued("r1"))


def test_the_number_of_a_run_decides_not_when_it_was_heard_of() -> None:
    """Another process created an older run; a run that is being created comes last."""
    admission = open_admission()
    for run in [queued("new"), replace(queued("b"), sequence=7), replace(queued("a"), sequence=8)]:
        admission.put(run)
    admission.put(replace(queued("z"), sequence=3))
    order = [admission.next_runs("public", "flow")[0]]
    for _ in range(3):
        admission.remove(order[-1])
        order += admission.next_runs("public", "flow")
    assert order == ["z", "b", "a", "new"]


def test_a_quarantined_run_holds_up_no_other() -> None:
    """W-5: it is passed over until it is retried."""
    admission = open_admission()
    for run in [replace(queued("r1"), sequence=1), replace(queued("r2"), sequence=2)]:
        admission.put(run)
    admission.quarantined.add("r1")
    assert admission.next_runs("public", "flow") == ["r2"]
    admission.quarantined.discard("r1")
    assert admission.next_runs("public", "flow") == ["r1"]


class AdmissionMachine(RuleBasedStateMachine):
    """Runs are created, stored, begun and ended in any order; writes fail, and other processes create runs too."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = open_admission()
        self.begun: set[str] = set()
        self.rows: dict[str, RunRow] = {}
        self.unstored: list[str] = []
        self.names = 0

    @initialize(limit=st.integers(1, 3))
    def choose_limit(self, limit: int) -> None:
        self.limit = limit

    def arrive(self, sequence: int) -> None:
        self.names += 1
        row = replace(queued(f"r{self.names % 7}-{self.names}", max_active=self.limit), sequence=sequence)
        self.rows[row.id] = row
        self.admission.put(row)

    @rule()
    def create(self) -> None:
        self.arrive(0)
        self.unstored.append(list(self.rows)[-1])

    @precondition(lambda self: self.unstored)
    @rule()
    def store_oldest(self) -> None:
        run = self.unstored.pop(0)
        self.rows[run] = replace(self.rows[run], sequence=max(row.sequence for row in self.rows.values()) + 1)
        self.admission.put(self.rows[run])

    @rule()
    def hear_of_another(self) -> None:
        """Read a run of another process: it is stored before all that are being created here."""
        self.arrive(max((row.sequence for row in self.rows.values()), default=0) + 1)

    def waiting(self) -> list[str]:
        waiting = [row for row in self.rows.values() if row.state is RunState.QUEUED]
        return [row.id for row in sorted(waiting, key=lambda row: (not row.sequence, row.sequence))]

    @precondition(lambda self: self.admission.next_runs("public", "flow"))
    @rule(is_written=st.booleans())
    def begin_next(self, is_written: bool) -> None:
        row = self.rows[self.admission.next_runs("public", "flow")[0]]
        running = begin(self.admission, row)
        if is_written:
            self.rows[row.id] = running
            self.begun.add(row.id)
        else:
            self.admission.put(row)

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def end_one(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(sorted(self.begun)))
        self.begun.discard(run)
        self.admission.remove(run)
        self.rows[run] = replace(self.rows[run], state=RunState.SUCCESS)

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def cancel_one(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.waiting()))
        self.admission.remove(run)
        self.rows[run] = replace(self.rows[run], state=RunState.CANCELLED)
        self.unstored = [one for one in self.unstored if one != run]

    @invariant()
    def the_oldest_may_begin_and_no_other(self) -> None:
        free = max(0, getattr(self, "limit", 1) - len(self.begun))
        assert self.admission.next_runs("public", "flow") == self.waiting()[:free]
        assert self.admission.running_count("public", "flow") == len(self.begun)


TestAdmission = AdmissionMachine.TestCase
