"""Declarations of what starts a workflow: `@tm.trigger`, `tm.on_firing` and `tm.on_output`."""

from collections.abc import Callable
from typing import Any

from tidemill.annotations.signatures import AuthorFunction, caller_location, inspect_signature
from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.workflows.definition import Expression, OnFiring, OnOutput, Trigger
from tidemill.workflows.expressions import expression_problem
from tidemill.workflows.graph_calls import is_callable_graph

DEFAULT_TIMEOUT_LIMIT = 60.0  # the longest default timeout, in seconds


def trigger(
    function: None = None,
    /,
    *,
    every: Duration | None = None,
    timeout: Duration | None = None,
    allow_concurrent: bool = False,
) -> Callable[[Callable[..., Any]], Trigger]:
    """Declare a trigger: a function that is polled at an interval, and returns tm.Fire(...) to start a run, or None.

    `timeout` is how long a call may take; by default `every`, but at most a minute. While a run with the same params is
    active no other starts, unless `allow_concurrent`.
    """
    location = caller_location()
    if every is None or callable(every):
        name = getattr(function or every, "__name__", None)
        message = '@tm.trigger needs the interval at which it is polled: write @tm.trigger(every="10s")'
        raise DefinitionError.single(f"trigger '{name}'" if name else "trigger", message, location)
    problems: list[str] = []
    seconds = _read_seconds("every", every, problems)
    timeout_seconds = min(seconds, DEFAULT_TIMEOUT_LIMIT)
    if timeout is not None:
        timeout_seconds = _read_seconds("timeout", timeout, problems)
    if not isinstance(allow_concurrent, bool):
        problems.append(f"allow_concurrent is True or False, not {allow_concurrent!r}")
    if problems:
        raise DefinitionError([Problem(message=one, location=location) for one in problems], "trigger")
    return lambda call: _declare_trigger(call, seconds, timeout_seconds, allow_concurrent, location)


def _read_seconds(option: str, value: Duration, problems: list[str]) -> float:
    try:
        return parse_positive_duration(value)
    except ValueError as error:
        problems.append(f"{option}: {error}")
        return 0.0


def _declare_trigger(
    call: Callable[..., Any], every: float, timeout: float, allow_concurrent: bool, location: Location
) -> Trigger:
    try:
        function = AuthorFunction.capture(call, depth=2)
    except TypeError as error:
        raise DefinitionError.single("trigger", str(error), location) from error
    if names := list(inspect_signature(call).parameters):
        message = f"a trigger is called without arguments, but '{function.name}' takes ({', '.join(names)})"
        raise DefinitionError.single(f"trigger '{function.name}'", message, function.location)
    return Trigger(function=function, every=every, timeout=timeout, allow_concurrent=allow_concurrent)


def on_firing(reactor: Any, *, when: Expression | None = None) -> OnFiring:
    """Declare that each firing of a reactor, given by its name or as declared, starts a run.

    The run's params are `payload`, the firing's inputs as plain values by source, and `firing_id`. `when` is an
    expression about these, such as "payload.orderbook.bid > 100.0", or a function of the payload; without it every
    firing starts a run.
    """
    location = caller_location()
    name = reactor if isinstance(reactor, str) else getattr(reactor, "name", None)
    if not isinstance(name, str) or not name:
        raise DefinitionError.single("on_firing", f"it takes a reactor, or its name, not {reactor!r}", location)
    if when is not None and (problem := expression_problem("when", when, "payload.orderbook.bid > 100.0")):
        raise DefinitionError.single("on_firing", problem, location)
    source = reactor if hasattr(type(reactor), "boundary_types") else None
    return OnFiring(name, when, location, source)


def on_output(
    graph: Any,
    node: str | Callable[..., Any] | None = None,
    *,
    when: Expression | None = None,
    cooldown: Duration | None = None,
    dedup: Expression | None = None,
) -> OnOutput:
    """Declare that each firing in which a terminal node returns a value, other than None, starts a run.

    Pass the node, `tm.on_output(maker.place)`, or the graph or its name, and the node's name. The value is the run's
    params if the workflow's `params` class is what the node returns, or one variant of it; other variants start
    nothing. Without `params`, tasks read `ctx["output"]`, `ctx["inputs"]` and `ctx["firing_id"]`.

    `when` is an expression about these three, or a function of the value. For values that repeat, `dedup` says what a
    value is about, as an expression or a function: while a run about the same is active no other starts. With
    `cooldown`, no other starts for so long after the firing that started the last one about the same.
    """
    location = caller_location()
    if node is None and is_callable_graph(getattr(graph, "graph", None)):
        graph, node = graph.graph, graph.name
    graph_name = graph if isinstance(graph, str) else getattr(graph, "name", None)
    node_name = node if isinstance(node, str) else getattr(node, "__name__", None)
    if not isinstance(graph_name, str) or not graph_name or not node_name:
        shown = ", ".join(map(repr, (graph, node) if node is not None else (graph,)))
        message = f"it takes a node, on_output(maker.place), or a graph and a node's name, not ({shown})"
        raise DefinitionError.single("on_output", message, location)
    problems: list[str] = []
    seconds = None if cooldown is None else _read_seconds("cooldown", cooldown, problems)
    for option, rule, example in (("when", when, "output.size > 100"), ("dedup", dedup, "output.sensor")):
        if rule is not None and (problem := expression_problem(option, rule, example)):
            problems.append(problem)
    if problems:
        raise DefinitionError([Problem(message=one, location=location) for one in problems], "on_output")
    return OnOutput(
        graph=graph_name,
        node=node_name,
        when=when,
        cooldown=seconds,
        dedup=dedup,
        location=location,
        source=graph if is_callable_graph(graph) else None,
    )
