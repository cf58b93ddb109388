"""Owners and descriptions of workflows and tasks: declared, stored with the version, shown without the code."""

import pytest

import tidemill as tm
from tidemill.api.local import LocalApi
from tidemill.api.workflows import WorkflowDetails, get_workflow, get_workflow_version
from tidemill.engine.access.services import LOCAL_PRINCIPAL

report = tm.Workflow("report", owner="data team", description="The figures of a day.\n\n    Indented.")


@report.task
def fetch() -> int:
    """Fetch the rows.

    They come from the warehouse.
    """
    return 1


@report.task(owner="finance", description="Publish the sum.")
def publish(fetch: int) -> int:
    """Not this text: the description wins."""
    return fetch


@report.task
def plain(publish: int) -> int:
    return publish


def told(details: WorkflowDetails) -> dict[str, tuple[str, str]]:
    """Return owner and description of a workflow and of its tasks."""
    tasks = {task.name: (task.owner, task.description) for task in details.tasks}
    return {"": (details.owner, details.description), **tasks}


EXPECTED = {
    "": ("data team", "The figures of a day.\n\nIndented."),
    "fetch": ("", "Fetch the rows.\n\nThey come from the warehouse."),
    "publish": ("finance", "Publish the sum."),
    "plain": ("", ""),
}


async def test_they_are_shown_where_the_code_is_and_where_it_is_not(store: str) -> None:
    """F10: a node without the code has them from the store, as has a version of before."""
    async with tm.testing.node(store, load=[report]) as node:
        api = LocalApi(node.services, LOCAL_PRINCIPAL)
        details = await api.call(get_workflow, {"name": "report"})
        assert told(details) == EXPECTED
        await node.unload("workflow:report")
        assert told(await api.call(get_workflow, {"name": "report"})) == EXPECTED
        version = await api.call(get_workflow_version, {"name": "report", "version": details.version})
        assert {one.name: one.description for one in version.tasks}["publish"] == "Publish the sum."


def test_they_do_not_change_the_version() -> None:
    """W-19: a run is pinned to structure and code, and a word about them is neither."""

    def declare(**about: str) -> tm.Workflow:
        workflow = tm.Workflow("same", **about)

        @workflow.task(**about)
        def work() -> int:
            return 1

        return workflow

    assert declare().wired().spec.version == declare(owner="team", description="words").wired().spec.version


@pytest.mark.parametrize("option", [{"owner": "a\nb"}, {"owner": 3}, {"description": ["x"]}])
def test_what_is_not_a_text_is_refused(option: dict[str, object]) -> None:
    name = next(iter(option))
    with pytest.raises(tm.DefinitionError, match=f"{name}: it is a"):
        tm.Workflow("wrong", **option)
    workflow = tm.Workflow("right")
    with pytest.raises(tm.DefinitionError, match=f"task 'work': {name}: it is a"):

        @workflow.task(**option)
        def work() -> None: ...


async def test_reactors_graphs_and_nodes_have_them() -> None:
    @tm.passthrough
    def price(event: int) -> int:
        return event

    desk = tm.Reactor("desk", [price], owner="traders", description="Prices.")
    graph = tm.Graph("graph", reactor=desk, owner="quants", description="Decides.")

    @graph.node
    def decide(price: int) -> int:
        """Decide."""
        return price

    @graph.node(owner="ops", description="Tell.")
    def tell(decide: int) -> int:
        """Not this text."""
        return decide

    async with tm.testing.node(load=[desk, graph]) as node:
        state = node.reactor("desk").state()
        assert (state.owner, state.description) == ("traders", "Prices.")
        details = await node.services.graphs.graph(LOCAL_PRINCIPAL, "graph")
        assert (details.owner, details.description) == ("quants", "Decides.")
        assert [(one.owner, one.description) for one in details.nodes] == [("", "Decide."), ("ops", "Tell.")]
    for declare in (
        lambda: tm.Reactor("wrong", [price], owner=3),
        lambda: tm.Graph("wrong", owner=3),
        lambda: graph.node(owner=3)(decide),
    ):
        with pytest.raises(tm.DefinitionError, match="owner: it is a line of text"):
            declare()
