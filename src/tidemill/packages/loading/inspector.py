"""The inspector: imports a package and reports what it declares. It runs in the probe process, and in the node.

`tidemill.packages.loading.probe` starts this module with `python -m`, with three descriptors as its only arguments: a
file that will hold the request, a pipe for the reply, and a pipe that signals the request. The reply begins with the
nonce of the request. A process that ended early has sent no reply, even if its exit code is 0.
"""

import faulthandler
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tidemill.annotations.signatures import AuthorFunction, Parameter
from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.graphs.snapshot import KeptValue
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.kernel.namespaces import Namespace, PackageTree
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.format.manifest import MANIFEST_FILE, Manifest
from tidemill.packages.loading.metadata import (
    DeclaredGraph,
    PackageMetadata,
    describe_graph,
    describe_reactor,
    describe_trigger,
    describe_workflow,
)
from tidemill.packages.loading.probe_environment import ProbeEnvironment
from tidemill.packages.loading.probe_isolation import isolate
from tidemill.packages.loading.reader import (
    MAIN_GUARD_HINT,
    Package,
    duplicate_name_problems,
    find_line,
    initial_state_problems,
    read_module,
)
from tidemill.workflows.workflow import Workflow


class UnresolvedGraph:
    """Stands for a graph of another package; the workflows that call it are checked when they are loaded."""

    reactor_name = None
    boundary_types = None
    is_async = False

    def __init__(self, name: str) -> None:
        self.name = name

    def inputs(self) -> Sequence[Parameter]:
        """Return no inputs: they are not known here."""
        return ()

    def returns(self) -> Mapping[str, Any]:
        """Return no outputs: they are not known here."""
        return {}

    def functions(self) -> Sequence[AuthorFunction]:
        """Return no functions: its code is not here."""
        return ()


def bind_known_graphs(
    workflow: Workflow, graphs: Mapping[str, Graph], reactors: Mapping[str, Reactor] | None = None
) -> Workflow:
    """Return a workflow with the graphs that it names; an UnresolvedGraph stands for an unknown one that it calls."""
    called = workflow.with_graphs(lambda name: graphs.get(name) or UnresolvedGraph(name))
    known = reactors or {}
    return called.with_sources(
        lambda one: graphs.get(one.graph_name or "") or known.get(one.reactor_name or "") or one.source
    )


PROBE_MARK_VARIABLE = "TIDEMILL_PROBE"
"""The environment variable that marks the probe process and everything that it starts."""

EXIT_UNANSWERED = 113
"""The exit code of a process that could not send its reply."""

_ENVIRONMENT_ERRORS = (ImportError, MemoryError, OSError)
"""Errors that the machine may have caused: a missing library, a full disk, too little memory."""

_SELF_KILL_GRACE = 5.0
"""Seconds after its limit at which a process ends by itself, if nothing else has ended it."""

_MESSAGE_LENGTH_LIMIT = 2_000
_PROBLEM_LIMIT = 200

T = TypeVar("T")


class ProbeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a package may use in the probe."""

    wall: float = 10.0
    """Seconds, from the start of the process to its end."""

    cpu: int = 10
    """Seconds of processor time."""

    memory: int = 1_073_741_824
    """Bytes of address space; 0 for no limit."""

    open_files: int = 256
    file_size: int = 16_777_216
    """Bytes of each file that it writes."""

    printed: int = 1_048_576
    """Bytes of output."""

    output: int = 65_536
    """Bytes of output that are kept from the start; the last lines are kept too, and the rest is counted."""

    answer: int = 16_777_216
    """Bytes of the reply."""


MEMORY_REMEDY = "import large libraries in the task that needs them, or raise the setting probe_memory"


def memory_text(memory: int) -> str:
    """Return the limit of address space in words."""
    return f"{memory / 2**30:.3g} GiB of address space" if memory else "the memory of the machine"


class ProbeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A package to probe."""

    nonce: bytes
    folder: str
    manifest: Manifest
    limits: ProbeLimits
    environment: ProbeEnvironment
    kept: tuple[KeptValue, ...] = ()
    """Values of its reactors to try to read."""


class ProbeReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe: metadata, or problems."""

    metadata: PackageMetadata | None = None
    problems: tuple[Problem, ...] = ()
    import_failed: bool = False
    """Whether a module could not be imported; the output may then help."""

    is_transient: bool = False
    """Whether the machine may be the cause, so that the same package may load later."""


class PackageInspector:
    """Inspects one package and collects all its problems."""

    def __init__(
        self, namespace: Namespace, manifest: Manifest, environment: ProbeEnvironment | None = None, memory: int = 0
    ) -> None:
        self._namespace = namespace
        self._memory = memory
        self._environment = environment or ProbeEnvironment.isolated()  # in the node, nothing is hidden
        self._folder = namespace.tree.folder
        self._author_folder = namespace.tree.shown
        self._manifest = manifest
        self._problems: list[Problem] = []
        self._import_failed = False
        self._is_transient = False
        self.package: Package | None = None
        """The package as its code declares it; None if it could not be read."""

    def inspect(self, kept: Sequence[KeptValue] = ()) -> ProbeReply:
        """Import the modules, check their definitions, and try to read values that older versions have kept."""
        modules = [module for name in self._manifest.modules if (module := self._import(name)) is not None]
        self.package = self._collect_problems(lambda: read_module(_merge_modules(self._manifest.name, modules)))
        metadata = self._build_metadata(self.package) if self.package is not None else None
        if self.package is not None and metadata is not None and kept:
            metadata = replace(metadata, unread=tuple(_find_unread(self.package, kept)))
        if self._problems:
            problems = tuple(map(self._shorten_problem, dict.fromkeys(self._problems)))[:_PROBLEM_LIMIT]
            return ProbeReply(problems=problems, import_failed=self._import_failed, is_transient=self._is_transient)
        return ProbeReply(metadata=metadata)

    # -- importing

    def _import(self, name: str) -> ModuleType | None:
        try:
            return self._namespace.import_module(name)
        except BaseException as error:  # author code: importing runs it, and it may raise anything
            self._record_import_failure(self._import_problems(name, error))
            return None

    def _record_import_failure(self, problems: Iterable[Problem]) -> None:
        self._import_failed = True
        self._problems += problems

    def _import_problems(self, name: str, error: BaseException) -> Iterable[Problem]:
        if isinstance(error, DefinitionError):
            return [replace(one, location=one.location or self._package_line(error)) for one in error.problems]
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            message = f"{MANIFEST_FILE} names module '{name}', which is not there"
            return [Problem(message=message, location=self._manifest_line(name))]
        self._is_transient |= isinstance(error, _ENVIRONMENT_ERRORS)
        if isinstance(error, SystemExit):
            reason = f"it ended the program, with SystemExit({error.code!r}): {MAIN_GUARD_HINT}"
        elif isinstance(error, MemoryError):
            reason = f"it needs more than {memory_text(self._memory)} while it is imported: {MEMORY_REMEDY}"
        else:
            reason = "; ".join(filter(None, [describe(error), self._environment.advice(error)]))
        return [Problem(message=f"importing '{name}' failed: {reason}", location=self._package_line(error))]

    def _package_line(self, error: BaseException) -> Location | None:
        """Return the last line of the package that an error passed through."""
        if isinstance(error, SyntaxError) and self._is_package_file(error.filename):
            return Location(str(error.filename), error.lineno or 1)
        frames = [one for one in traceback.extract_tb(error.__traceback__) if self._is_package_file(one.filename)]
        return Location(frames[-1].filename, frames[-1].lineno or 1) if frames else None

    def _is_package_file(self, file: str | None) -> bool:
        return file is not None and Path(file).is_relative_to(self._author_folder)

    # -- definitions

    def _build_metadata(self, package: Package) -> PackageMetadata | None:
        self._problems += duplicate_name_problems(package)
        reactors = {one.name: one for one in package.reactors}
        graphs = {one.name: one for one in package.graphs}
        workflows = [bind_known_graphs(one, graphs, reactors) for one in package.workflows]
        for workflow in workflows:
            self._collect_problems(workflow.check, workflow.location)
        for reactor in package.reactors:
            self._problems += initial_state_problems(reactor)
        described_graphs = [self._describe_graph(one, reactors) for one in package.graphs]
        if not self._import_failed:
            self._problems += self._undeclared_names(package)
        if self._problems:
            return None
        return PackageMetadata(
            name=self._manifest.name,
            version=str(self._manifest.version),
            modules=self._manifest.modules,
            reactors=tuple(describe_reactor(one, self._relocate) for one in package.reactors),
            graphs=tuple(one for one in described_graphs if one is not None),
            triggers=tuple(describe_trigger(one, self._relocate) for one in package.triggers),
            workflows=tuple(describe_workflow(one, self._relocate) for one in workflows),
        )

    def _describe_graph(self, graph: Graph, reactors: Mapping[str, Reactor]) -> DeclaredGraph | None:
        reactor = reactors.get(graph.reactor) if isinstance(graph.reactor, str) else graph.reactor
        return self._collect_problems(lambda: describe_graph(graph, reactor, self._relocate), graph.location)

    def _undeclared_names(self, package: Package) -> Iterator[Problem]:
        """Yield a problem for each name in the manifest that no module declares."""
        if not (package.reactors or package.graphs or package.triggers or package.workflows):
            names = ", ".join(self._manifest.modules)
            subject = "it" if self._environment.single_file else f"its modules ({names})"
            message = f"nothing is declared in {subject}: no reactor, graph, trigger or workflow"
            yield Problem(message=message, location=self._manifest_line("modules"))
        reactors = [one.name for one in package.reactors]
        for name in self._manifest.reactors:
            if name not in reactors:
                message = f"[reactors.{name}]: no module declares reactor '{name}'{did_you_mean(name, reactors)}"
                yield Problem(message=message, location=self._manifest_line(name))
        tasks = [f"{workflow.name}.{task.name}" for workflow in package.workflows for task in workflow.tasks]
        for name in self._manifest.tasks:
            if name not in tasks:
                message = f'[tasks."{name}"]: no workflow has that task{did_you_mean(name, tasks)}'
                yield Problem(message=message, location=self._manifest_line(name))

    def _manifest_line(self, word: str) -> Location | None:
        """Return the first line of the manifest that contains a word, or its first line."""
        if self._environment.single_file:  # it has no manifest
            return Location(self._environment.single_file, 1)
        with suppress(OSError, UnicodeDecodeError):
            return Location(MANIFEST_FILE, find_line(Path(self._folder, MANIFEST_FILE), word) or 1)
        return Location(MANIFEST_FILE, 1)

    # -- problems

    def _collect_problems(self, read: Callable[[], T], location: Location | None = None) -> T | None:
        """Return what `read` returns, and collect its problems; those without a location get this one."""
        try:
            return read()
        except DefinitionError as error:
            self._problems += (replace(one, location=one.location or location) for one in error.problems)
        except BaseException as error:  # author code: checks evaluate its annotations, schedules and classes
            self._is_transient |= isinstance(error, _ENVIRONMENT_ERRORS)
            message = f"what it declares cannot be checked: {describe(error)}"
            self._problems.append(Problem(message=message, location=self._package_line(error) or location))
        return None

    def _relocate(self, location: Location) -> Location:
        return Location(self._relative_paths(location.file), location.line)

    def _shorten_problem(self, problem: Problem) -> Problem:
        """Return a problem with paths relative to the package, and a bounded message."""
        location = None if problem.location is None else self._relocate(problem.location)
        message = self._relative_paths(problem.message)
        if len(message) > _MESSAGE_LENGTH_LIMIT:
            message = f"{message[:_MESSAGE_LENGTH_LIMIT]}…"
        return replace(problem, location=location, message=message)

    def _relative_paths(self, text: str) -> str:
        return self._namespace.plain_text(text).replace(f"{self._author_folder}{os.sep}", "")


def _find_unread(package: Package, kept: Sequence[KeptValue]) -> list[str]:
    """Return what the reactors of a package do not read of kept values, in words."""
    from tidemill.engine.graphs.checkpoints.kept_values import KeptValueTrial  # on use: most probes read no values

    trial = KeptValueTrial(package.reactors)
    for value in kept:
        trial.add(value)
    return trial.describe()


def _merge_modules(name: str, modules: Sequence[ModuleType]) -> ModuleType:
    """Return one module with the contents of all, so that they are read as one package."""
    merged = ModuleType(name)
    for module in modules:
        vars(merged).update({f"{module.__name__}.{key}": value for key, value in vars(module).items()})
    return merged


# -- the process


def _apply_limits(limits: ProbeLimits) -> None:
    """Set the resource limits of this process, hard ones included."""
    import resource  # on use: Windows has none, and runs loose files without limits

    resource_limits = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_CPU: (limits.cpu, limits.cpu + 1),  # SIGXCPU at the first, SIGKILL at the second
        resource.RLIMIT_AS: (limits.memory or resource.RLIM_INFINITY,) * 2,
        resource.RLIMIT_NOFILE: (limits.open_files, limits.open_files),
        resource.RLIMIT_FSIZE: (limits.file_size, limits.file_size),
    }
    for kind, pair in resource_limits.items():
        _, allowed = resource.getrlimit(kind)
        soft, hard = (_lower(one, allowed, resource.RLIM_INFINITY) for one in pair)
        with suppress(ValueError, OSError):  # some systems lack some of them
            resource.setrlimit(kind, (soft, hard))


def _lower(limit: int, allowed: int, none: int) -> int:
    """Return the lower of two limits; `none` stands for no limit."""
    return min((one for one in (limit, allowed) if one != none), default=none)


def _die_with_parent(parent_pipe: int) -> None:
    """Let the system end this process and its group when the parent ends.

    A thread that waits for the end of the pipe would not do: a package may never release the interpreter lock.
    """
    import fcntl  # on use: as above

    for number in (signal.SIGIO, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # the default action ends the process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGIO, signal.SIGALRM])
    os.set_inheritable(parent_pipe, False)
    fcntl.fcntl(parent_pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(parent_pipe, fcntl.F_SETFL, fcntl.fcntl(parent_pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([parent_pipe], [], [], 0)[0]:  # the parent ended before the signal was set up
        os._exit(EXIT_UNANSWERED)


def main() -> None:
    """Answer one request and exit without running any exit handler of the package."""
    request_fd, reply_fd, wake_fd = map(int, sys.argv[1:])
    if not os.read(wake_fd, 1):  # the parent has ended, and can no longer remove the folder
        os.rmdir(os.getcwd())
        os._exit(EXIT_UNANSWERED)
    _die_with_parent(wake_fd)
    isolate(wake_fd)
    with open(request_fd, "rb") as file:
        file.seek(0)
        request = msgspec.msgpack.decode(file.read(), type=ProbeRequest)
    owner, sys.argv[1:] = os.getpid(), []
    faulthandler.register(signal.SIGXCPU, chain=True)
    _apply_limits(request.limits)
    signal.setitimer(signal.ITIMER_REAL, request.limits.wall + _SELF_KILL_GRACE)  # its default action ends the process
    tree = PackageTree(request.folder, request.folder, request.manifest.top_level_names)
    request.environment.apply(PROBE_MARK_VARIABLE)
    inspector = PackageInspector(Namespace(tree), request.manifest, request.environment, request.limits.memory)
    reply = inspector.inspect(request.kept)
    if os.getpid() != owner:  # a fork made by the package: it waits to be counted as a leftover process
        signal.pause()
    data = request.nonce + msgspec.msgpack.encode(reply)
    while data:
        data = data[os.write(reply_fd, data) :]


if __name__ == "__main__":
    status = EXIT_UNANSWERED
    try:
        main()
        status = 0
    except BaseException as error:  # author code may have changed anything; only the exit code is certain to arrive
        with suppress(BaseException):
            os.write(2, f"{describe(error)}\n".encode(errors="replace"))
    finally:
        os._exit(status)
