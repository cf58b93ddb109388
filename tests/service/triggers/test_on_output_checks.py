"""What `tm.on_output` refuses when it is declared and loaded, and how it holds the graphs that it names."""

from datetime import date
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm
from tests.service.triggers.alerts import Alert, Calm, Plant, Reading, cooler, degrees, heat


def flow_of(*triggers: Any, params: Any = None) -> tm.Workflow:
    """Return a workflow of one task."""
    flow = tm.Workflow("w", params=params, triggers=triggers)

    @flow.task
    def act() -> None: ...

    return flow


class Unrelated(tm.Params):
    """Params that no node returns."""

    day: date


@pytest.mark.parametrize(
    ("graph", "node", "options", "said"),
    [
        ("monitor", "alrt", {}, r"graph 'monitor' has no node 'alrt' \(did you mean 'alert'\?\)"),
        ("monitor", "summary", {}, "node 'summary' is not terminal, because other nodes take its value; the terminal"),
        ("monitr", "alert", {}, r"there is no graph 'monitr' \(did you mean 'monitor'\?\): load it first"),
        ("called", "score", {}, "graph 'called' has no reactor, so it never fires"),
        (
            "monitor",
            "audit",
            {"params": Alert},
            r"node 'audit' returns dict\[str, str\], and the workflow takes params=",
        ),
        (
            "monitor",
            "alert",
            {"params": Unrelated},
            r"node 'alert' returns Alert \| Calm \| None, and the workflow takes",
        ),
        ("monitor", "alert", {"when": "outptu.celsius > 1"}, r"no variable 'outptu' \(did you mean 'output'\?\)"),
        ("monitor", "alert", {"dedup": "output.sensr"}, r"has no field 'sensr' \(did you mean 'sensor'\?\)"),
        ("monitor", "alert", {"when": "output.celsius > 'x'"}, "compares output.celsius, a number, with 'x', a string"),
        ("monitor", "alert", {"when": "inputs.reding.celsius > 1"}, r"no field 'reding' \(did you mean 'reading'\?\)"),
        ("monitor", "alert", {"dedup": "output.sensor +"}, r"dedup='output.sensor \+'\): at 1:16: Syntax error"),
    ],
)
async def test_what_cannot_work_is_refused_when_it_is_loaded(
    graph: str, node: str, options: dict[str, Any], said: str
) -> None:
    """api.md: checked at load, each problem with file and line."""
    called = tm.Graph("called")

    @called.node
    def score(x: int) -> int:
        return x

    params = options.pop("params", None)
    flow = flow_of(tm.on_output(graph, node, **options), params=params)
    async with tm.testing.node(load=[*Plant().load, called]) as node_:
        with pytest.raises(tm.DefinitionError, match=rf"test_on_output_checks.py:\d+: on_output\('{graph}'.*{said}"):
            await node_.load(flow)
        assert node_.registry.workflows() == []


def test_a_node_that_is_passed_is_checked_without_a_node() -> None:
    """`check()` needs no running node, if the graph is at hand."""
    plant = Plant()
    flow_of(tm.on_output(plant.graph.alert), params=Alert).check()
    with pytest.raises(tm.DefinitionError, match="is not terminal"):
        flow_of(tm.on_output(plant.graph.summary)).check()
    with pytest.raises(AttributeError, match=r"graph 'monitor' has no node 'alrt' \(did you mean 'alert'\?\)"):
        _ = plant.graph.alrt


async def test_a_graph_that_a_workflow_of_another_package_follows_stays_as_it_is_needed() -> None:
    """P-4: it cannot be unloaded, nor lose the node or its type; the old version stays."""
    seen: list[Any] = []
    plant = Plant()
    async with tm.testing.node(load=[*plant.load, cooler(seen)]) as node:
        with pytest.raises(tm.RequestError, match=r"graph 'monitor' has 1 bound subscriber\(s\): \['cool'\]") as caught:
            await node.unload("graph:monitor")
        assert caught.value.code == "graph_in_use"
        changed = tm.Graph("monitor", reactor="r")

        @changed.node
        def alert(reading: Reading) -> Calm:
            return Calm(sensor="x")

        with pytest.raises(tm.RequestError, match="node 'alert' returns Calm, and the workflow takes params=Alert"):
            await node.load(changed)
        await heat(node, 101.0)
        await node.unload("workflow:cool")
        await node.load(changed)
    assert degrees(seen) == [101.0]


async def test_a_class_of_another_package_is_compared_by_name_and_fields() -> None:
    """api.md: types across packages are compared by qualified name and schema digest; the value becomes one's own."""
    source = "import tidemill as tm\nclass Alert(tm.Boundary):\n    sensor: str\n    celsius: float\n"
    graphs, flows = ModuleType("plant"), ModuleType("plant")
    for module in (graphs, flows):
        exec(source, vars(module))
    theirs, ours = graphs.Alert, flows.Alert
    seen: list[Any] = []

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a])
    graph = tm.Graph("g", reactor=reactor)

    def out(a: int) -> Any:
        return theirs(sensor="s", celsius=float(a))

    out.__annotations__["return"] = theirs
    graph.node(out)
    flow = tm.Workflow(
        "w", params=ours, triggers=[tm.on_output("g", "out", when=lambda value: isinstance(value, ours))]
    )

    def act(params: Any) -> None:
        seen.append(type(params))

    act.__annotations__["params"] = ours
    flow.task(act)
    async with tm.testing.node(load=[reactor, graph, flow]) as node:
        await node.push("a", 1)
        await node.settle()
        assert seen == [ours]
        exec(source.replace("celsius: float", "celsius: int"), vars(flows))
        with pytest.raises(tm.DefinitionError, match=r"params=plant\.Alert; .* field 'celsius' is float"):
            await node.load(flow_of(tm.on_output("g", "out"), params=flows.Alert))


async def test_a_graph_on_a_reactor_of_another_tenant_starts_its_own_tenants_runs() -> None:
    """G-30: the workflow belongs to the tenant of the graph, not of the reactor."""
    plant = Plant()
    shared = tm.Graph("mine", reactor="public/r")

    @shared.node
    def alert(reading: Reading) -> Alert:
        return Alert(sensor="mine", celsius=reading.celsius)

    seen: list[Any] = []
    flow = tm.Workflow("w", params=Alert, triggers=[tm.on_output("mine", "alert")])

    @flow.task
    def act(params: Alert) -> None:
        seen.append(params.sensor)

    async with tm.testing.node(load=plant.load) as node:
        node.registry.set_shared("public", "r", shared=True)
        await node.load(shared, tenant="acme")
        await node.load(flow, tenant="acme")
        await heat(node, 101.0)
        assert seen == ["mine"]
        assert len(await node.runs("w", tenant="acme")) == 1


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((3,), {}, r"it takes a node, on_output\(maker.place\), or a graph and a node's name, not \(3\)"),
        (("monitor",), {}, r"not \('monitor'\)"),
        (("monitor", "alert"), {"cooldown": "soon"}, "cooldown: "),
        (("monitor", "alert"), {"when": 3}, "when= is an expression such as 'output.size > 100', or a function of one"),
        (
            ("monitor", "alert"),
            {"dedup": lambda: 1},
            "dedup= takes a function of one value, which '.*' cannot be called",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(
    arguments: tuple[Any, ...], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(tm.DefinitionError, match=rf"test_on_output_checks.py:\d+.*{said}"):
        tm.on_output(*arguments, **options)


async def test_an_async_function_is_no_condition() -> None:
    async def later(value: Any) -> bool:
        return bool(value)

    with pytest.raises(tm.DefinitionError, match=r"a function that answers at once, and '.*later' is async"):
        tm.on_output("monitor", "alert", when=later)
