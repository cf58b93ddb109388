"""Shows the packages of `tidemill dev`: first a table, then a line for each change."""

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from tidemill.cli.dev_next_steps import first_steps, next_steps
from tidemill.cli.formatting import (
    format_count,
    format_short_duration,
    format_short_time,
    one_line,
    relative_path,
    timezone_name,
)
from tidemill.cli.output import build_table, ready_line, show, terminal_width
from tidemill.engine.registry import PackageState
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import Location, Problem
from tidemill.kernel.version import VERSION
from tidemill.node import Node
from tidemill.packages.format.archive import UNVERSIONED
from tidemill.packages.sanitizing import fingerprint, printable
from tidemill.packages.status import PackageStatus
from tidemill.workflows.spec import without_handlers

INDENT = " " * 10
STYLES = {"loaded": "green", "failed": "bold red", "waiting": "yellow", "preparing": "cyan"}
LISTED_NAMES_LIMIT = 3  # of more names of one kind, only the number is shown


class DevView:
    """Prints packages and events to standard output; calls `on_output_closed` if that has been closed."""

    def __init__(
        self, node: Node, root: Path, clock: Clock, on_output_closed: Callable[[], None], store: str = ""
    ) -> None:
        self._node = node
        self._root = root
        self._store = store
        self._url = ""
        self._has_shown_steps = False
        self._clock = clock
        self._on_output_closed = on_output_closed
        self._has_shown_packages = False
        self._on_progress: Callable[[PackageStatus], object] = lambda _: None
        self._changed_at: dict[str, datetime] = {}
        self._shown_digests: dict[str, str] = {}
        """The digest of each package when it was last printed as loaded."""
        self._shown_failures: dict[str, str] = {}
        """The fingerprint of the last printed failure of each failed package."""
        self._paths: dict[str, str] = {}
        """The file or folder of each package; an unloaded one no longer has any."""

    # -- lines

    def print_event(self, text: str, subject: str = "", style: str = "", details: Iterable[str] = ()) -> None:
        """Print an event with time and subject, and its details below it."""
        line = Text(f"{self._clock.now().astimezone():%H:%M:%S}  ", "dim")
        if subject:
            line.append(f"{printable(subject)}  ", "bold")
        line.append(printable(text), style)
        below = [f"{INDENT}{printable(one)}".rstrip() for detail in details for one in detail.splitlines()]
        self._print(line, *map(Text, below))

    def _print(self, *things: Text | Table) -> None:
        try:
            show(*things)
        except SystemExit:  # Rich raises it when the pipe has been closed
            self._on_output_closed()

    def print_banner(self, url: str) -> None:
        """Print where the node answers, what runs, and from which folder."""
        self._url = url
        self._print(Text(ready_line(url)))
        folder = relative_path(str(self._root))
        self.print_event(f"tidemill {VERSION} runs the packages in {folder}; Ctrl-C stops it")

    # -- packages

    def show_packages(self, statuses: Sequence[PackageStatus]) -> None:
        """Print a table of all packages, and their problems; print changes from now on."""
        self._has_shown_packages = True
        self._on_progress = lambda _: None
        if not statuses:
            steps = "\n".join(first_steps(relative_path(str(self._root))))
            self.print_event("there is no package yet; to begin, run in another terminal:", details=[steps])
            return
        self._print(self._table(statuses))
        for one in statuses:
            self._shown_digests[one.name] = self._package_state(one.name).digest
            if one.state == "failed":
                self._print_failure(one)
        self._show_next_steps()

    def _show_next_steps(self) -> None:
        """Print what the developer can do now, with commands to copy; once, when something is loaded."""
        if not self._has_shown_steps and self._node.registry.packages():
            self._has_shown_steps = True
            steps = next_steps(self._node.registry, self._node.tenant, self._store, self._url)
            self._print(*(Text(f"{INDENT}{printable(one)}") for one in steps))

    def on_progress(self, callback: Callable[[PackageStatus], object]) -> None:
        """Call this whenever the status of a package changes, until the table is shown."""
        self._on_progress = callback

    def on_status(self, status: PackageStatus) -> None:
        """Print the new status of a package."""
        self._on_progress(status)
        if status.state == "preparing":
            self._changed_at[status.name] = status.since
        if status.title:
            self._paths[status.name] = status.title
        if self._has_shown_packages:
            self._print_status(status)

    def _print_status(self, status: PackageStatus) -> None:
        match status.state:
            case "loaded":
                self._print_loaded(status)
            case "failed":
                self._print_failure(status)
            case "waiting":
                names = ", ".join(status.waiting_for)
                self.print_event(f"waiting for {names}{_fallback_text(status)}", status.name, STYLES["waiting"])
            case "unloaded":
                self._print_unloaded(status.name)

    def _print_loaded(self, status: PackageStatus) -> None:
        had_failed = self._shown_failures.pop(status.name, None) is not None
        noticed = self._changed_at.pop(status.name, None)
        state = self._package_state(status.name)
        before, self._shown_digests[status.name] = self._shown_digests.get(status.name), state.digest
        if before == state.digest:
            if had_failed or noticed:  # else only its path has changed
                self.print_event("matches the loaded version again", status.name, STYLES["loaded"])
            return
        since = noticed or status.since
        elapsed = (self._clock.now() - since).total_seconds() * 1000
        action = " ".join(filter(None, ["reloaded" if before else "loaded", _version_text(status.version)]))
        self.print_event(f"{action} in {elapsed:,.0f} ms: {_contents_text(state)}", status.name, STYLES["loaded"])
        self._show_next_steps()

    def _print_unloaded(self, name: str) -> None:
        self._shown_digests.pop(name, None)
        path = self._paths.pop(name, "")
        reason = "no longer imports tidemill" if os.path.isfile(path) else "is gone"
        self.print_event(f"unloaded: {relative_path(path)} {reason}" if path else "unloaded", name, "yellow")

    def _print_failure(self, status: PackageStatus) -> None:
        if status.failures > 1 and self._shown_failures.get(status.name) == fingerprint(status.reason):
            return  # the retry failed in the same way
        self._shown_failures[status.name] = fingerprint(status.reason)
        problems = [self.format_problem(one, status.title) for one in status.problems] or [status.reason]
        self.print_event(f"{_failure_text(status)}{_fallback_text(status)}", status.name, STYLES["failed"], problems)

    def _package_state(self, name: str) -> PackageState:
        return self._node.registry.packages.find(self._node.tenant, name) or PackageState()

    def _table(self, statuses: Sequence[PackageStatus]) -> Table:
        rows = [[Text(printable(text), style) for text, style in self._cells(one)] for one in statuses]
        names = ["package", "version", "reactors", "graphs", "workflows", "triggers", "state"]
        kept = [number for number in range(len(names)) if any(row[number] for row in rows)]
        columns = [Column(names[number]) for number in kept]
        cells = [[row[number] for number in kept] for row in rows]
        droppable = ["triggers", "version", "graphs", "reactors", "workflows"]
        return build_table(columns, cells, terminal_width(), droppable=droppable, folded=names[:1] + names[2:-1])

    def _cells(self, status: PackageStatus) -> Iterator[tuple[str, str]]:
        """Yield the cells of a row, each with its style."""
        state = self._package_state(status.name)
        yield status.name, ""
        yield _version_text(status.version or status.wanted), ""
        yield ", ".join(state.reactors), ""
        yield ", ".join([*state.graphs, *state.triggerless]), ""
        yield ", ".join(map(self._with_next_slot, without_handlers(state.workflows))), ""
        yield ", ".join(state.triggers), ""
        waiting = f" for {', '.join(status.waiting_for)}" if status.waiting_for else ""
        yield f"{status.state}{waiting}", STYLES.get(status.state, "")

    def _with_next_slot(self, name: str) -> str:
        workflow = self._node.registry.workflows.find(self._node.tenant, name)
        now = self._clock.now()
        slots = [one.next_after(now) for one in workflow.schedules] if workflow is not None else []
        slot = min((slot for slot in slots if slot is not None), default=None)
        return name if slot is None else f"{name} (next {format_short_time(slot)} {timezone_name([slot])})"

    # -- locations

    def format_problem(self, problem: Problem, title: str) -> str:
        """Return a problem with a path that a terminal can open; problems name files relative to their package."""
        location = problem.location
        if location is None:
            return problem.message
        folder = os.path.dirname(title) if title.endswith(".py") else title
        file = os.path.join(folder, location.file)
        path = file if os.path.exists(file) else location.file
        return f"{self.format_location(Location(path, location.line))}: {problem.message}"

    def format_location(self, location: Location) -> str:
        """Return a location as file:line, relative to the current folder."""
        return f"{relative_path(location.file)}:{location.line}"

    def error_location(self, error: BaseException) -> str:
        """Return where in a package an error was raised; "" if it was not raised there."""
        frames = traceback.extract_tb(error.__traceback__)
        folder = f"{self._root if self._root.is_dir() else self._root.parent}{os.sep}"
        own = [one for one in frames if one.filename.startswith(folder)]
        return self.format_location(Location(own[-1].filename, own[-1].lineno or 0)) if own else ""


def _version_text(version: str | None) -> str:
    """Return a version; "" for a Python file, which has none."""
    return "" if version in (None, UNVERSIONED) else str(version)


def _failure_text(status: PackageStatus) -> str:
    """Return which operation failed."""
    if status.wanted is None and status.version and not status.title:
        return "cannot be unloaded"
    return "cannot be loaded"


def _fallback_text(status: PackageStatus) -> str:
    """Return what keeps running in place of the wanted version, and when the next attempt is."""
    # Rounded, because the status is set a moment after the retry is planned.
    seconds = 0.0 if status.again_at is None else max(0.0, (status.again_at - status.since).total_seconds())
    delay = "" if status.again_at is None else format_short_duration(round(seconds, 1))
    running = f"version {status.version}" if status.version != status.wanted else "the last good version"
    return f"{f'; {running} is still running' if status.version else ''}{f'; retry in {delay}' if delay else ''}"


def _contents_text(state: PackageState) -> str:
    """Return a short list of a package's definitions."""
    kinds = {
        "reactor": state.reactors,
        "graph": (*state.graphs, *state.triggerless),
        "workflow": without_handlers(state.workflows),
        "trigger": state.triggers,
    }
    parts = [
        f"{kind} {', '.join(names)}" if len(names) <= LISTED_NAMES_LIMIT else format_count(len(names), kind)
        for kind, names in kinds.items()
        if names
    ]
    return one_line("; ".join(parts)) or "no definitions"
