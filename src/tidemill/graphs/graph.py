"""Graph: nodes declared by decorator, wired and compiled on first use, and callable directly."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, overload

from tidemill.annotations.signatures import MISSING, AuthorFunction, Parameter, caller_location
from tidemill.graphs.compiler import CompiledGraph, compile_graph
from tidemill.graphs.definition import Accumulator, GraphNodeDefinition, Reactor
from tidemill.graphs.direct_call import build_direct_call
from tidemill.graphs.wiring import wire
from tidemill.kernel.about import About, about_problems, clean_text
from tidemill.kernel.errors import DefinitionError, Problem
from tidemill.kernel.limits import NAME_RULE, is_name
from tidemill.kernel.suggestions import did_you_mean

if TYPE_CHECKING:
    from tidemill.graphs.result import GraphCall

Function = TypeVar("Function", bound=Callable[..., Any])


class CallGraph(Protocol):
    """What calling a graph calls."""

    def __call__(self, /, **inputs: Any) -> "GraphCall":
        """Run the graph once on its inputs, which are given by name."""


class GraphNodeReference(NamedTuple):
    """A node of a graph, `maker.place`, to name it elsewhere."""

    graph: "Graph"
    name: str

    @property
    def function(self) -> AuthorFunction:
        """The function of the node."""
        return next(node.function for node in self.graph.nodes if node.name == self.name)


class Graph:
    """A computation graph: functions wired by parameter name, routed by the class of what they return.

    `reactor` is the Reactor it binds to, that reactor's name, or nothing for a graph that is only called.
    Called with its inputs by keyword it runs once and returns a GraphResult, or an awaitable of one if any node is
    async.
    """

    # `__call__` is a slot, so that calling a graph calls its generated function directly.
    __slots__ = ("__call__", "_compiled", "_direct_function", "about", "location", "name", "nodes", "reactor")

    def __init__(
        self, name: str, *, reactor: Reactor | str | None = None, owner: str = "", description: str = ""
    ) -> None:
        self.name = name
        self.reactor = reactor
        self.location = caller_location()
        self.nodes: list[GraphNodeDefinition] = []
        self._compiled: CompiledGraph | None = None
        self._direct_function: Callable[..., GraphCall] | None = None
        self.__call__: CallGraph = self._build_and_call
        if not is_name(name):
            raise DefinitionError.single("graph", f"a graph needs a name, {NAME_RULE}, not {name!r}", self.location)
        if reactor is not None and not isinstance(reactor, Reactor | str):
            message = f"reactor is a tm.Reactor, its name, or left out, not {reactor!r}"
            raise DefinitionError.single(f"graph '{name}'", message, self.location)
        self._check_about(owner, description)
        self.about = About(owner, clean_text(description))

    def _check_about(self, owner: Any, description: Any, node: str | None = None) -> None:
        where = "" if node is None else f"node '{node}': "
        if found := list(about_problems(owner, description)):
            problems = [Problem(message=f"{where}{one}", location=self.location, node=node) for one in found]
            raise DefinitionError(problems, f"graph '{self.name}'")

    @overload
    def node(self, function: Function, /) -> Function: ...
    @overload
    def node(
        self,
        function: None = None,
        /,
        *,
        thread: bool = False,
        feeds: Accumulator | str | None = None,
        ignores: Sequence[Any] = (),
        owner: str = "",
        description: str = "",
    ) -> Callable[[Function], Function]: ...
    def node(
        self,
        function: Any = None,
        /,
        *,
        thread: bool = False,
        feeds: Accumulator | str | None = None,
        ignores: Sequence[Any] = (),
        owner: str = "",
        description: str = "",
    ) -> Any:
        """Add a function as a node. It stays an ordinary function: call it, test it.

        `thread` sends a blocking function to a thread, `feeds` pushes its result into an accumulator, of any reactor,
        when the firing succeeds, `ignores` names variants that deliberately go nowhere. Without a `description`, the
        docstring of the function describes it.
        """
        if function is not None:
            return self._add_node(function)
        if not isinstance(ignores, list | tuple | set):
            message = f"ignores is a list of classes, such as ignores=[Hold], not {ignores!r}"
            raise DefinitionError.single(f"graph '{self.name}'", message, caller_location())
        options = {"thread": thread, "feeds": feeds, "ignores": tuple(ignores)}
        return lambda call: self._add_node(call, **options, owner=owner, description=description)

    def _add_node(self, function: Function, **options: Any) -> Function:
        try:
            captured = AuthorFunction.capture(function, depth=2)
        except TypeError as error:
            raise DefinitionError.single(f"graph '{self.name}'", str(error), self.location) from error
        self._check_about(options.get("owner", ""), options.get("description", ""), captured.name)
        if captured.is_interactive:
            self.nodes[:] = [one for one in self.nodes if not captured.replaces(one.function)]
        self.nodes.append(GraphNodeDefinition(function=captured, **options))
        self._compiled = self._direct_function = None
        self.__call__ = self._build_and_call
        return function

    def __getattr__(self, name: str) -> GraphNodeReference:
        """Return a reference to a node. The graph's own attributes come first: `tm.on_output(graph, "name")`."""
        if name.startswith("_") or name in Graph.__slots__:  # a copy that is being made has no nodes yet
            raise AttributeError(name)
        if any(node.name == name for node in self.nodes):
            return GraphNodeReference(self, name)
        known = [node.name for node in self.nodes]
        raise AttributeError(f"graph '{self.name}' has no node '{name}'{did_you_mean(name, known)}")

    def check(self) -> None:
        """Wire and compile the graph now; raise one DefinitionError with all problems."""
        self.compiled()

    def compiled(self) -> CompiledGraph:
        """Return the compiled graph, built once, and again after a node was added."""
        if self._compiled is None:
            self._compiled = self.compile_for(self.reactor if isinstance(self.reactor, Reactor) else None)
        return self._compiled

    def compile_for(self, reactor: Reactor | None) -> CompiledGraph:
        """Compile the graph against the accumulators of a reactor."""
        return compile_graph(wire(self.name, self.nodes, reactor))

    @property
    def reactor_name(self) -> str | None:
        """The name of the reactor it binds to, if any."""
        return self.reactor.name if isinstance(self.reactor, Reactor) else self.reactor

    @property
    def boundary_types(self) -> dict[str, Any] | None:
        """The types of the inputs of its reactor's firings, by accumulator; None if it has only the reactor's name."""
        return self.reactor.boundary_types if isinstance(self.reactor, Reactor) else None

    def inputs(self) -> tuple[Parameter, ...]:
        """Return the parameters of a direct call; an optional one has a default."""
        return tuple(
            Parameter(name=one.name, annotation=one.annotation, default=MISSING if one.required else None)
            for one in self.compiled().wiring.inputs
        )

    def returns(self) -> dict[str, Any]:
        """Return the return annotations of its terminal nodes by name."""
        wiring = self.compiled().wiring
        return {one.name: one.node.function.signature().returns for one in wiring.nodes if one.name in wiring.terminals}

    def functions(self) -> tuple[AuthorFunction, ...]:
        """Return the functions of its nodes, as declared."""
        return tuple(node.function for node in self.nodes)

    @property
    def is_async(self) -> bool:
        """Whether a call must be awaited."""
        return self.compiled().is_async

    @property
    def source_code(self) -> str:
        """The generated function, as text."""
        return self.compiled().generated.source

    def _build_and_call(self, /, **inputs: Any) -> "GraphCall":
        """Build the function behind direct calls once, and call it; callers may keep a reference to this method."""
        if self._direct_function is None:
            self._direct_function = self.__call__ = build_direct_call(self.compiled())
        return self._direct_function(**inputs)

    def __repr__(self) -> str:
        return f"<graph '{self.name}' of {', '.join(node.name for node in self.nodes)}>"
