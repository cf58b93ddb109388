"""Random workflows, driven to their end in random order: the planner against an interpreter of the documented rules.

The interpreter is the specification in its shortest form. It knows tasks, words and lists, no rows and no commands: it
gets the ended tasks, and computes the state of every task by recursion. Both are compared after every pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.workflows.plan import (
    UNMAPPED,
    Command,
    Expand,
    Finish,
    PlannedRun,
    TaskRun,
    Transition,
    plan,
    plan_after,
    plan_first,
    run_outcome,
)
from tidemill.workflows.rules import RULES
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VARIANTS = ["A", "B", "C"]
ENDS = ["success"] * 5 + ["failed", "failed", "skipped", "skipped", "cancelled", "upstream_failed"]
KIND_ENDS = ["success"] * 5 + ["skipped"]
ORDERS = 4  # of completion, for each workflow
Key = tuple[str, int]


# -- workflows


some_variants = st.lists(st.sampled_from(VARIANTS), min_size=1, unique=True).map(tuple)


@st.composite
def workflows(draw: st.DrawFn) -> WorkflowSpec:
    """Draw a workflow with rules, routes and mappings, declared in any order."""
    tasks: list[TaskSpec] = []
    for number in range(draw(st.integers(1, 7))):
        sources = draw(st.lists(st.sampled_from(tasks), max_size=3, unique_by=lambda one: one.name)) if tasks else []
        edges = [edge for source in sources for edge in draw(edges_from(source))]
        valued = [edge.source for edge in edges if edge.parameter is not None]
        each = draw(st.sampled_from(valued)) if valued and draw(st.integers(0, 2)) == 0 else None
        if any(source.name == each and source.each is not None for source in sources) and draw(st.booleans()):
            takes = draw(some_variants)  # mapped over a mapped one: the elements of some variants
            edges = [replace(edge, takes=takes) if edge.parameter == each else edge for edge in edges]
        rule = draw(st.sampled_from(["all_success", *RULES]))
        if rule == "all_success" and draw(st.booleans()):  # as wired where no rule is named: all but the list may be
            edges = [replace(edge, optional=edge.source != each and draw(st.booleans())) for edge in edges]
        tasks.append(TaskSpec(name=f"t{number}", edges=tuple(edges), rule=rule, each=each))
    return WorkflowSpec(name="w", tasks=tuple(draw(st.permutations(tasks))))


@st.composite
def mappings(draw: st.DrawFn) -> WorkflowSpec:
    """Draw a workflow in which nearly every task is mapped over one before it, which may be mapped too."""
    tasks = [TaskSpec(name="t0")]
    for number in range(1, draw(st.integers(2, 5))):
        source = draw(st.sampled_from(tasks))
        takes = None if source.each is None else draw(st.none() | some_variants)
        is_mapped = draw(st.integers(0, 3)) > 0
        edge = TaskEdge(source.name, source.name, takes if is_mapped else None)
        rule = "all_success" if is_mapped else "all_done"
        tasks.append(TaskSpec(name=f"t{number}", edges=(edge,), rule=rule, each=source.name if is_mapped else None))
    return WorkflowSpec(name="w", tasks=tuple(tasks))


@st.composite
def edges_from(draw: st.DrawFn, source: TaskSpec) -> list[TaskEdge]:
    """Draw how a task waits for another one: for its end, its value, some variants of it, or two of these."""
    value = TaskEdge(source.name, source.name)
    if source.each is None and draw(st.booleans()):  # a mapped one gives a list, which is no variant
        value = TaskEdge(source.name, source.name, draw(some_variants))
    return draw(st.sampled_from([[value], [value], [TaskEdge(source.name)], [value, TaskEdge(source.name)]]))


# -- the interpreter


@dataclass(frozen=True)
class Fate:
    """What becomes of a task, or an element, once it runs."""

    end: str
    variant: str | None
    size: int | None
    put_off: int

    @staticmethod
    def drawn(chance: Random, *, is_kind: bool = False) -> "Fate":
        if is_kind:
            return Fate(chance.choice(KIND_ENDS), chance.choice(VARIANTS), chance.choice([0, 2, 3, 3]), 0)
        size = chance.choice([None, 0, 1, 2, 3])
        return Fate(chance.choice(ENDS), chance.choice([*VARIANTS, None]), size, chance.choice([0, 0, 0, 1, 2]))


@dataclass
class Interpreter:
    """How every task of a run stands, from what has ended."""

    spec: WorkflowSpec
    ended: dict[Key, Fate] = field(default_factory=dict)
    decided: dict[str, str | int] = field(default_factory=dict)
    """A word for what never ran; for what does: WHOLE, or how many elements."""

    def look(self) -> dict[str, list[str]]:
        """Return how each task stands, by element."""
        for name in self.spec.by_name:
            self.word(name)
        return {name: self.parts(name) for name in self.spec.by_name}

    def parts(self, name: str) -> list[str]:
        match self.decided.get(name):
            case None:
                return ["none"]
            case str(word):
                return [word]
            case size:
                indexes = [UNMAPPED] if size == UNMAPPED else range(size)
                ends = [self.ended.get((name, index)) for index in indexes]
                return [end.end if end else "open" for end in ends]

    def word(self, name: str) -> str:
        """Return how a task stands to those after it, having decided on it if that can be done."""
        if name not in self.decided and (decision := self.decide(name)) is not None:
            self.decided[name] = decision
        parts = self.parts(name)
        if {"none", "open"} & set(parts):
            return "open"
        worst = [bad for bad in ("failed", "upstream_failed", "cancelled") if bad in parts]
        return worst[0] if worst else "success" if "success" in parts else "skipped"

    def towards(self, edge: TaskEdge) -> str:
        word = self.word(edge.source)
        has_value = word == "success" and self.decided[edge.source] != "success"  # which says: an empty list
        if has_value and edge.takes is not None and not self.carried(edge):
            word = "skipped"
        return "success" if edge.optional and word == "skipped" else word

    def carried(self, edge: TaskEdge) -> list[int]:
        """Return the elements of a task whose values go along an edge; WHOLE for one that is not mapped."""
        ends = [(index, fate) for (name, index), fate in sorted(self.ended.items()) if name == edge.source]
        return [
            index
            for index, fate in ends
            if fate.end == "success" and (edge.takes is None or fate.variant in edge.takes)
        ]

    def decide(self, name: str) -> str | int | None:
        task = self.spec.by_name[name]
        words: dict[str, str] = {}
        for edge in task.edges:
            word = self.towards(edge)
            words[edge.source] = "skipped" if "skipped" in (word, words.get(edge.source)) else word
        decision = verdict(task.rule, list(words.values()))
        if decision != "run":
            return None if decision == "wait" else decision
        if task.each is None:
            return UNMAPPED
        [mapping] = [edge for edge in task.edges if edge.parameter == task.each]
        return self.mapped(mapping, words[task.each])

    def mapped(self, mapping: TaskEdge, word: str) -> str | int | None:
        """Return what becomes of a task that is mapped over another one and may run."""
        if word != "success":
            return {"open": None, "skipped": "skipped"}.get(word, "upstream_failed")
        if self.spec.by_name[mapping.source].each is None:
            size = self.ended[mapping.source, UNMAPPED].size
        else:
            size = len(self.carried(mapping))
        return "upstream_failed" if size is None else size or "success"

    def outcome(self) -> str:
        """Return how the run ended: without those that only tidy up, the last tasks decide."""
        work = [one for one in self.spec.tasks if one.rule not in ("all_done", "always") or not one.edges]
        followed = {source for one in work for source in one.upstream}
        words = {self.word(one.name) for one in work if one.name not in followed}
        if "cancelled" in words:
            return "cancelled"
        return "failed" if {"failed", "upstream_failed"} & words else "success"


def verdict(rule: str, words: list[str]) -> str:
    """Return what Airflow's rules make of those before a task: run, wait, or the word that it ends with."""
    has = {"failed" if word == "cancelled" else word for word in words}
    bad, is_open = has & {"failed", "upstream_failed"}, "open" in has
    once_done = "wait" if is_open else "run"
    fails, skips = "upstream_failed", "skipped"
    if not words or rule == "always":
        return "run"
    match rule:
        case "all_success":
            return fails if bad else skips if "skipped" in has else once_done
        case "all_failed":
            return skips if has & {"success", "skipped"} else once_done
        case "all_done":
            return once_done
        case "one_success":
            return "run" if "success" in has else "wait" if is_open else fails if bad else skips
        case "one_failed":
            return "run" if bad else "wait" if is_open else skips
        case "one_done":
            return "run" if has & {"success", "failed"} else "wait" if is_open else skips
        case "none_failed":
            return fails if bad else once_done
        case "none_failed_min_one_success":
            return fails if bad else skips if has == {"skipped"} else once_done
        case "none_skipped":
            return skips if "skipped" in has else once_done
        case "all_skipped":
            return skips if bad or "success" in has else once_done
    raise AssertionError(rule)


# -- the world


class World:
    """A run as a store would keep it, and workers that finish things in random order."""

    def __init__(
        self, spec: WorkflowSpec, chance: Random, rows: list[TaskRun] | None = None, *, is_kind: bool = False
    ) -> None:
        self.spec = spec
        self.is_kind = is_kind
        self.chance = chance
        self.now = NOW
        self.state = RunState.RUNNING
        self.rows = {(one.task, one.index): one for one in rows or [TaskRun(task=one.name) for one in spec.tasks]}
        self.planned_at: datetime | None = None
        self.changed: set[str] = set()
        """Tasks to which something has happened since the last plan."""
        self.fates: dict[Key, Fate] = {}
        self.put_off: dict[Key, int] = {}

    def passes(self) -> Iterator[dict[Key, Fate]]:
        """Plan and work until the run has ended; yield what has ended after each pass."""
        while not self.state.is_terminal:
            self.plan()
            yield {
                key: self.fates[key] for key, row in self.rows.items() if row.state.is_terminal and key in self.fates
            }
            if not self.state.is_terminal:
                self.work()

    def plan(self) -> None:
        """Plan once and apply it: legal, the same for any order of rows, and nothing is left to say.

        Who looks only at what has changed since the last time comes to the same.
        """
        commands = self.commands()
        assert self.commands() == commands
        if all(row.state is TaskState.NONE for row in self.rows.values()):
            assert plan_first(self.spec) == commands
        if self.planned_at == self.now:
            assert plan_after(self.spec, self.rows, self.changed, self.now) == commands
        assert [one for one in commands if isinstance(one, Finish)] in ([], commands[-1:])
        for one in commands:
            self.apply(one)
        assert self.commands() == []
        self.planned_at, self.changed = self.now, set()

    def commands(self) -> list[Command]:
        rows = list(self.rows.values())
        self.chance.shuffle(rows)
        return plan(PlannedRun(spec=self.spec, state=self.state, tasks=rows), self.now)

    def apply(self, command: Command) -> None:
        match command:
            case Transition(task, index, before, after):
                assert self.rows[task, index].state is before
                self.move((task, index), after)
            case Expand(task, size):
                assert self.rows.pop((task, UNMAPPED)).state is TaskState.NONE
                fresh = [TaskRun(task=task, index=index, state=TaskState.SCHEDULED) for index in range(size)]
                assert fresh
                self.rows |= {(task, one.index): one for one in fresh}
            case Finish(state):
                assert state is not self.state
                assert RUN_TRANSITIONS.is_allowed(self.state, state)
                assert all(row.state.is_terminal for row in self.rows.values())
                self.state = state

    def move(self, key: Key, after: TaskState, **more: object) -> None:
        row = self.rows[key]
        assert row.state is not after
        assert TASK_TRANSITIONS.is_allowed(row.state, after), (row, after)
        self.rows[key] = replace(row, state=after, **more)
        self.changed.add(key[0])

    def work(self) -> None:
        """Let something happen to some of what is active, or time pass."""
        moving = [key for key, row in self.rows.items() if row.state in ("scheduled", "queued", "running")]
        waiting = [row.wake_at for row in self.rows.values() if row.state in ("up_for_retry", "deferred")]
        assert moving or waiting, "the run is stuck"
        for key in self.chance.sample(moving, self.chance.randint(not waiting, len(moving))) if moving else []:
            self.advance(key)
        if waiting and (not moving or self.chance.random() < 0.5):
            self.now = max(self.now, min(waiting))

    def advance(self, key: Key) -> None:
        match self.rows[key].state:
            case TaskState.SCHEDULED:
                self.move(key, TaskState.QUEUED)
            case TaskState.QUEUED:
                drained = self.chance.random() < 0.1
                self.move(key, TaskState.SCHEDULED if drained else TaskState.RUNNING)
            case _:
                self.end(key)

    def end(self, key: Key) -> None:
        fate = self.fates.setdefault(key, Fate.drawn(self.chance, is_kind=self.is_kind))
        tried = self.put_off[key] = self.put_off.get(key, -1) + 1
        if tried < fate.put_off:
            later = self.now + timedelta(seconds=self.chance.randint(0, 9))
            self.move(key, self.chance.choice([TaskState.UP_FOR_RETRY, TaskState.DEFERRED]), wake_at=later)
        else:
            is_success = fate.end == "success"
            value = {"variant": fate.variant, "size": fate.size} if is_success else {}
            self.move(key, TaskState(fate.end), **value)

    def look(self) -> dict[str, list[str]]:
        """Return how each task stands, by element, in the interpreter's words."""
        found: dict[str, list[str]] = {name: [] for name in self.spec.by_name}
        for key in sorted(self.rows):
            state = self.rows[key].state
            found[key[0]].append("open" if state.is_active else state.value)
        return found


# -- the proofs


@given(workflows(), st.integers(0, 2**32))
def test_every_run_goes_as_the_interpreter_says(spec: WorkflowSpec, seed: int) -> None:
    """W-3, W-4, leoflow 9-14, cloacina 107-110: after every pass, every task stands as the documented rules say."""
    for order in range(ORDERS):
        world, oracle = World(spec, Random(seed + order)), Interpreter(spec)
        for ended in world.passes():
            oracle.ended = ended
            assert world.look() == oracle.look()
        assert world.state.value == oracle.outcome()


@given(mappings(), st.integers(0, 2**32))
def test_mappings_over_mappings_go_as_the_interpreter_says(spec: WorkflowSpec, seed: int) -> None:
    """api.md, A workflow: a union routes, also the elements of a mapped task; a branch that none takes is skipped."""
    world, oracle = World(spec, Random(seed), is_kind=True), Interpreter(spec)
    for ended in world.passes():
        oracle.ended = ended
        assert world.look() == oracle.look()


@given(workflows(), st.integers(0, 2**32))
def test_no_run_gets_stuck_wherever_it_begins(spec: WorkflowSpec, seed: int) -> None:
    """W-10, leoflow 8 and 14: from any cleared or half-done state, a run whose tasks all end gets its Finish."""
    for order in range(ORDERS):
        chance = Random(seed + order)
        world = World(spec, chance, [row for one in spec.tasks for row in anyhow(one, chance)])
        passes = sum(1 for _ in world.passes())
        assert passes < 1000
        assert world.commands() == []


def anyhow(task: TaskSpec, chance: Random) -> list[TaskRun]:
    """Return the rows of a task in any states at all."""
    sizes = [0] if task.each is None else [0, 1, 2, 3]
    indexes = range(chance.choice(sizes)) or [UNMAPPED]
    return [
        TaskRun(
            task=task.name,
            index=index,
            state=chance.choice([TaskState.NONE, *TaskState]),
            variant=chance.choice([*VARIANTS, None]),
            size=chance.choice([None, 0, 1, 2]),
            wake_at=NOW + timedelta(seconds=chance.randint(-5, 5)),
        )
        for index in indexes
    ]


@given(workflows(), st.integers(0, 2**32))
def test_the_outcome_is_pure(spec: WorkflowSpec, seed: int) -> None:
    """W-3, W-10: who looks again at a run that has ended, as the run reaper does, judges it the same."""
    world = World(spec, Random(seed))
    assert list(world.passes())
    ended = world.state
    world.state = RunState.RUNNING
    assert world.commands() == [Finish(ended)]
    if all(index == UNMAPPED for _, index in world.rows):
        assert run_outcome(spec, {name: row.state for (name, _), row in world.rows.items()}) is ended
