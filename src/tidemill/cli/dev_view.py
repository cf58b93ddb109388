"""What `tidemill dev` shows of packages: a table of them, then a line whenever one of them changes."""

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from tidemill import __version__
from tidemill.cli.output import show, tabulated, width
from tidemill.cli.words import count, length, one_line, seen, short_moment, zone
from tidemill.engine.registry import PackageState
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import Location, Problem
from tidemill.node import Node
from tidemill.packages.sources.plain import VERSION
from tidemill.packages.status import PackageStatus
from tidemill.packages.words import gist, visible

INDENT = " " * 10
STYLES = {"loaded": "green", "failed": "bold red", "waiting": "yellow", "preparing": "cyan"}
NAMED = 3  # names of one kind that are listed in a line before they are only counted


class DevView:
    """Shows packages and lines on standard output; `lost` is called if nobody reads that any more."""

    def __init__(self, node: Node, root: Path, clock: Clock, lost: Callable[[], None]) -> None:
        self._node = node
        self._root = root
        self._clock = clock
        self._lost = lost
        self._has_begun = False
        self._noticed: dict[str, datetime] = {}
        self._digests: dict[str, str] = {}
        """What was loaded when it was last told."""
        self._failures: dict[str, str] = {}
        """What was last told of those that have failed."""

    # -- lines

    def say(self, text: str, subject: str = "", style: str = "", details: Iterable[str] = ()) -> None:
        """Print a line with the time, what it is about, and more below it."""
        line = Text(f"{self._clock.now().astimezone():%H:%M:%S}  ", "dim")
        if subject:
            line.append(f"{visible(subject)}  ", "bold")
        line.append(visible(text), style)
        self._print(line, *(Text(f"{INDENT}{visible(one)}") for detail in details for one in detail.splitlines()))

    def _print(self, *things: Text | Table) -> None:
        try:
            show(*things)
        except SystemExit:  # what Rich makes of a pipe that nobody reads any more
            self._lost()

    def greet(self) -> None:
        """Say what runs, and where."""
        self.say(f"tidemill {__version__} runs what is in {seen(str(self._root))}; Ctrl-C ends it")

    # -- packages

    def show_packages(self, statuses: Sequence[PackageStatus]) -> None:
        """Print all packages as they stand, and what is wrong with them; from now on, changes."""
        self._has_begun = True
        if not statuses:
            self.say("there is no package yet: save a Python file that imports tidemill, or a folder with package.toml")
            return
        self._print(self._table(statuses))
        for one in statuses:
            self._digests[one.name] = self._state(one.name).digest
            if one.state == "failed":
                self._tell_failure(one)

    def hear(self, status: PackageStatus) -> None:
        """Tell how a package stands now."""
        if status.state == "preparing":
            self._noticed[status.name] = status.since
        if self._has_begun:
            self._tell(status)

    def _tell(self, status: PackageStatus) -> None:
        match status.state:
            case "loaded":
                self._tell_loaded(status)
            case "failed":
                self._tell_failure(status)
            case "waiting":
                names = ", ".join(status.waiting_for)
                self.say(f"waits for {names}{_meanwhile(status)}", status.name, STYLES["waiting"])
            case "unloaded":
                self._digests.pop(status.name, None)
                self.say("unloaded", status.name, "yellow")

    def _tell_loaded(self, status: PackageStatus) -> None:
        had_failed = self._failures.pop(status.name, None) is not None
        noticed = self._noticed.pop(status.name, None)
        state = self._state(status.name)
        before, self._digests[status.name] = self._digests.get(status.name), state.digest
        if before == state.digest:
            if had_failed or noticed:  # else it only lies somewhere else now
                self.say("is again what is loaded", status.name, STYLES["loaded"])
            return
        since = noticed or status.since
        took = (self._clock.now() - since).total_seconds() * 1000
        done = " ".join(filter(None, ["reloaded" if before else "loaded", _named(status.version)]))
        self.say(f"{done} in {took:,.0f} ms: {_contents(state)}", status.name, STYLES["loaded"])

    def _tell_failure(self, status: PackageStatus) -> None:
        if status.failures > 1 and self._failures.get(status.name) == gist(status.reason):
            return  # it was tried again, and nothing is new
        self._failures[status.name] = gist(status.reason)
        problems = [self.problem(one, status.title) for one in status.problems] or [status.reason]
        self.say(f"{_failure(status)}{_meanwhile(status)}", status.name, STYLES["failed"], problems)

    def _state(self, name: str) -> PackageState:
        return self._node.registry.package(self._node.tenant, name) or PackageState()

    def _table(self, statuses: Sequence[PackageStatus]) -> Table:
        rows = [[Text(visible(text), style) for text, style in self._cells(one)] for one in statuses]
        names = ["package", "version", "reactors", "graphs", "workflows", "triggers", "state"]
        kept = [number for number in range(len(names)) if any(row[number] for row in rows)]
        columns = [Column(names[number]) for number in kept]
        cells = [[row[number] for number in kept] for row in rows]
        spare = ["triggers", "version", "graphs", "reactors", "workflows"]
        return tabulated(columns, cells, width(), spare=spare, folded=names[:1] + names[2:-1])

    def _cells(self, status: PackageStatus) -> Iterator[tuple[str, str]]:
        """Yield the cells of a row, each with its style."""
        state = self._state(status.name)
        yield status.name, ""
        yield _named(status.version or status.wanted), ""
        yield ", ".join(state.reactors), ""
        yield ", ".join([*state.graphs, *state.triggerless]), ""
        yield ", ".join(map(self._with_next_slot, state.workflows)), ""
        yield ", ".join(state.triggers), ""
        waiting = f" for {', '.join(status.waiting_for)}" if status.waiting_for else ""
        yield f"{status.state}{waiting}", STYLES.get(status.state, "")

    def _with_next_slot(self, name: str) -> str:
        workflow = self._node.registry.workflow(self._node.tenant, name)
        now = self._clock.now()
        slots = [one.next_after(now) for one in workflow.schedules] if workflow is not None else []
        found = [slot for slot in slots if slot is not None]
        return f"{name} (next {short_moment(min(found))} {zone([min(found)])})" if found else name

    # -- places that a terminal can lead to

    def problem(self, problem: Problem, title: str) -> str:
        """Return a problem with the place as it is seen from here; problems name files as their package does."""
        location = problem.location
        if location is None:
            return problem.message
        folder = os.path.dirname(title) if title.endswith(".py") else title
        file = os.path.join(folder, location.file)
        place = file if os.path.exists(file) else location.file
        return f"{self.place(Location(place, location.line))}: {problem.message}"

    def place(self, location: Location) -> str:
        """Return a file and a line, seen from here."""
        return f"{seen(location.file)}:{location.line}"

    def site(self, error: BaseException) -> str:
        """Return where in a package an error came from; "" if it did not."""
        frames = traceback.extract_tb(error.__traceback__)
        folder = f"{self._root if self._root.is_dir() else self._root.parent}{os.sep}"
        own = [one for one in frames if one.filename.startswith(folder)]
        return self.place(Location(own[-1].filename, own[-1].lineno or 0)) if own else ""


def _named(version: str | None) -> str:
    """Return a version; nothing for that of a Python file, which has none."""
    return "" if version in (None, VERSION) else str(version)


def _failure(status: PackageStatus) -> str:
    """Return what could not be done."""
    if status.wanted is None and status.version and not status.title:
        return "cannot be unloaded"
    return "cannot be loaded"


def _meanwhile(status: PackageStatus) -> str:
    """Return what runs although something else is wanted, and when that is tried again."""
    again = length(max(0.0, (status.again_at - status.since).total_seconds())) if status.again_at is not None else ""
    running = f"version {status.version}" if status.version != status.wanted else "the last good version"
    return f"{f'; {running} is still running' if status.version else ''}{f'; tried again in {again}' if again else ''}"


def _contents(state: PackageState) -> str:
    """Return what a package holds, in a few words."""
    kinds = {
        "reactor": state.reactors,
        "graph": (*state.graphs, *state.triggerless),
        "workflow": state.workflows,
        "trigger": state.triggers,
    }
    parts = [
        f"{kind} {', '.join(names)}" if len(names) <= NAMED else count(len(names), kind)
        for kind, names in kinds.items()
        if names
    ]
    return one_line("; ".join(parts)) or "nothing that runs"
