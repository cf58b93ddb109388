"""Nodes in processes of their own, and checks that their journal and their store agree."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.architecture.sources import ROOT
from tests.simulation.run_audit import audit
from tests.system import workflow_flows, workflow_node
from tests.system.workflow_flows import JOURNAL, Note, read_journal
from tests.system.workflow_node import Ask, Recipe
from tidemill.engine.tasks import TaskScope
from tidemill.storage.addresses import make_store
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import RunFilter
from tidemill.telemetry.events import LEADERSHIP_LOST, LEADERSHIP_WON
from tidemill.workflows.records import AttemptRow, RunRecord, RunRow
from tidemill.workflows.workflow import Workflow

PATIENCE = 30.0  # seconds for anything at all
MOMENT = 0.01  # seconds between two checks

Said = dict[str, Any]


class NodeProcess:
    """One node, and its output."""

    def __init__(self, process: asyncio.subprocess.Process, recipe: Recipe) -> None:
        self.process = process
        self.recipe = recipe
        self.said: list[Said] = []
        self.ended_at: float | None = None
        """The latest moment at which its tasks may have run, if it has ended."""
        self._news = asyncio.Condition()
        self._is_silent = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_in_office(self) -> bool:
        """Whether it has reported to be the leader."""
        turns = [line["what"] for line in self.said if line["what"] in (LEADERSHIP_WON, LEADERSHIP_LOST)]
        return self.process.returncode is None and bool(turns) and turns[-1] == LEADERSHIP_WON

    async def listen(self) -> None:
        """Read its output until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self._news:
                self.said.append(msgspec.json.decode(line))
                self._news.notify_all()
        async with self._news:
            self._is_silent = True
            self._news.notify_all()

    async def hear(self, what: str, *, after: float = 0.0, within: float = PATIENCE) -> Said:
        """Return the first message of a kind after a moment; wait for it if needed."""

        def found() -> Said | None:
            return next((line for line in self.said if line["what"] == what and line["at"] > after), None)

        async with self._news, asyncio.timeout(within):
            await self._news.wait_for(lambda: found() is not None or self._is_silent)
        said = found()
        assert said is not None, f"the node ended without a word of '{what}'"
        return said

    async def ask(self, ask: Ask, answer: str) -> Said:
        """Send a request, and return the reply."""
        assert self.process.stdin is not None
        before = time.monotonic()
        self.process.stdin.write(msgspec.json.encode(ask) + b"\n")
        return await self.hear(answer, after=before)

    async def start(self, workflow: str, count: int = 1) -> list[str]:
        """Start runs."""
        said = await self.ask(Ask("start", workflow, count), "started")
        assert not said["errors"], said
        runs: list[str] = said["runs"]
        return runs

    async def metrics(self) -> dict[str, float]:
        """Return its metrics."""
        found: dict[str, float] = (await self.ask(Ask("metrics"), "metrics"))["metrics"]
        return found

    def signal(self, sent: signal.Signals) -> float:
        """Send it a signal; return the moment before."""
        moment = time.monotonic()
        self.process.send_signal(sent)
        return moment

    async def kill(self) -> float:
        """Kill it with SIGKILL; return the moment before, when it was certainly alive."""
        self.ended_at = self.signal(signal.SIGKILL)
        await self.process.wait()
        return self.ended_at

    async def stop(self) -> None:
        """Shut it down cleanly."""
        if self.process.returncode is None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            await self.await_end()

    async def await_end(self) -> None:
        """Wait until it has shut down cleanly. Its threads run until the very end, its children until it closes."""
        async with asyncio.timeout(PATIENCE):
            assert await self.process.wait() == 0
        self.ended_at = (await self.hear("closed" if self.recipe.executor == "in_process" else "closing"))["at"]


class Fleet:
    """Several nodes on one store, and their journal."""

    def __init__(self, store: str, folder: Path, tasks: TaskScope) -> None:
        self.address = store
        self.journal = folder / "journal"
        self.nodes: list[NodeProcess] = []
        self.all: list[NodeProcess] = []
        self._folder = folder
        self._tasks = tasks

    async def add(self, **recipe: Any) -> NodeProcess:
        """Start a node, and wait until it is ready."""
        made = Recipe(**{"store": self.address, "workflows": ["load", "patient", "short"], **recipe})
        command = sys.executable, "-m", workflow_node.__name__, msgspec.json.encode(made).decode()
        with (self._folder / f"node {len(self.all)}").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, JOURNAL: str(self.journal)},
            )
        node = NodeProcess(process, made)
        self.nodes.append(node)
        self.all.append(node)
        self._tasks.start(f"node {node.pid}: listen", node.listen())
        await node.hear("ready")
        return node

    async def leader(self) -> NodeProcess:
        """Return the only leader, once there is exactly one."""
        await until(lambda: sum(node.is_in_office for node in self.nodes) == 1, "exactly one node is in office")
        return next(node for node in self.nodes if node.is_in_office)

    async def kill(self, node: NodeProcess) -> float:
        """Kill a node; return the moment before."""
        self.nodes.remove(node)
        return await node.kill()

    async def next_leader(
        self, after: float, within: float, but: NodeProcess | None = None
    ) -> tuple[NodeProcess, Said]:
        """Return the first node that became leader after a moment, and its message."""

        def found() -> list[tuple[float, NodeProcess, Said]]:
            return [
                (line["at"], node, line)
                for node in self.nodes
                for line in node.said
                if node is not but and line["what"] == LEADERSHIP_WON and line["at"] > after
            ]

        await until(lambda: bool(found()), "another node is in office", within)
        _, node, said = min(found(), key=lambda one: one[0])
        return node, said

    async def stop(self) -> None:
        """Shut all nodes down cleanly, at the same time."""
        async with asyncio.TaskGroup() as ends:
            for node in self.nodes:
                ends.create_task(node.stop(), name=f"node {node.pid}: stop")

    async def end(self) -> None:
        """Kill everything that is left."""
        for node in self.all:
            with suppress(ProcessLookupError):
                node.process.kill()
            await node.process.wait()

    def let_go(self) -> None:
        """Release everything that waits."""
        self.journal.with_name("gate").touch()

    def notes(self) -> list[Note]:
        """Return the journal."""
        return read_journal(self.journal)


@asynccontextmanager
async def fleet_on(store: str, folder: Path) -> AsyncIterator[Fleet]:
    """Yield a fleet without nodes; kill what is left of it in the end."""
    tasks = TaskScope()
    await tasks.open()
    fleet = Fleet(store, folder, tasks)
    try:
        yield fleet
    finally:
        await fleet.end()
        await tasks.close()


async def until(is_so: Callable[[], bool | Awaitable[bool]], what: str, within: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + within
    while True:
        answer = is_so()
        if answer if isinstance(answer, bool) else await answer:
            return
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        await asyncio.sleep(MOMENT)


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Store]:
    """Open the store of a fleet."""
    store = make_store(address)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def all_runs(store: Store) -> list[RunRow]:
    """Return every run."""
    return await store.runs.find(RunFilter(tenant="public", limit=100_000))


async def all_ended(store: Store, within: float = PATIENCE, but: str = "") -> None:
    """Wait until every run has ended, except those of one workflow."""

    async def left() -> list[str]:
        return [run.id for run in await all_runs(store) if not run.state.is_terminal and run.workflow != but]

    async def have_ended() -> bool:
        return not await left()

    try:
        await until(have_ended, "every run has ended", within)
    except AssertionError as error:
        records = await store.runs.load((await left())[:3])
        raise AssertionError(f"{error}; {len(await left())} have not, such as {records}") from error


# -- checks of journal and store


class Execution(NamedTuple):
    """The execution of one attempt, from its start to its end, or to the death of its node."""

    who: str  # the task run
    number: int  # the attempt
    node: int
    begin: float
    end: float
    has_ended: bool


def executions(notes: Iterable[Note], deaths: dict[int, float]) -> list[Execution]:
    """Return every execution in the journal; an interrupted one lasted until the death of its node, or still runs."""
    ends = {(note.token, note.node): note.at for note in notes if note.what == "end"}
    found = []
    for note in notes:
        if note.what == "begin":
            who, _, number = note.token.rpartition("#")
            end = ends.get((note.token, note.node))
            last = end if end is not None else deaths.get(note.node, float("inf"))
            found.append(Execution(who, int(number), note.node, note.at, last, end is not None))
    return found


def check_executions(found: Iterable[Execution]) -> None:
    """I-5, F34: no attempt is executed twice, and no two executions of one task run overlap; attempts only grow."""
    by_task: defaultdict[str, list[Execution]] = defaultdict(list)
    for one in found:
        by_task[one.who].append(one)
    for executed in by_task.values():
        executed.sort(key=lambda one: one.begin)
        for before, after in pairwise(executed):
            assert before.number < after.number, f"an attempt was executed twice, or late: {before} {after}"
            assert before.end <= after.begin, f"two executions at the same time: {before} {after}"


def check_effects(found: Iterable[Execution], records: Iterable[RunRecord], attempts: Iterable[AttemptRow]) -> None:
    """I-2, I-8: every effect was made under a token that the store gave to that node; every success is one of them."""
    rows = {str(attempt.key): attempt for attempt in attempts}
    seen = {f"{one.who}#{one.number}": one for one in found}
    for token, one in seen.items():
        assert token in rows, f"an effect under a token that no attempt had: {one}"
    for token, row in rows.items():
        if row.outcome == "success":
            assert token in seen, f"a success without an execution: {row}"
            assert seen[token].has_ended, row
    for record in records:
        for task in record.tasks:
            assert rows_of(record, task.task, task.index, rows) <= 1, f"more than one success: {task}"


def rows_of(record: RunRecord, task: str, index: int, rows: dict[str, AttemptRow]) -> int:
    """Return how many attempts of a task run succeeded."""
    key = record.run.id, task, index
    return sum(row.key[:3] == key and row.outcome == "success" for row in rows.values())


async def check_everything(fleet: Fleet) -> list[RunRecord]:
    """Check journal and store of a fleet that has ended; return all runs."""
    deaths = {node.pid: node.ended_at for node in fleet.all if node.ended_at is not None}
    found = executions(fleet.notes(), deaths)
    check_executions(found)
    async with opened(fleet.address) as store:
        records = await audit(store, specs())
        attempts = [row for record in records for row in await store.runs.read_attempts(record.run.id)]
    check_effects(found, records, attempts)
    return records


def specs() -> dict[str, Any]:
    """Return the spec of every workflow that nodes may have loaded."""
    flows = [value for value in vars(workflow_flows).values() if isinstance(value, Workflow)]
    return {flow.name: flow.wired().spec for flow in flows}
