"""Tasks of clusters on nodes without one: a test node runs them itself, and others say what to set."""

import pytest

import tidemill as tm
from tidemill.workflows.states import RunState


def cluster_flow(executor: str) -> tm.Workflow:
    """Return a workflow whose task names a cluster."""
    flow = tm.Workflow("flow")

    @flow.task(executor=executor)
    def work() -> int:
        return 1

    return flow


@pytest.mark.parametrize("executor", ["kubernetes", "ray"])
async def test_a_test_node_runs_tasks_of_clusters_itself(executor: str) -> None:
    async with tm.testing.node("memory://", load=[cluster_flow(executor)]) as node:
        run = await node.start("flow")
        await node.settle()
        assert (await run.state()).state is RunState.SUCCESS


@pytest.mark.parametrize(
    ("executor", "setting"), [("kubernetes", "TIDEMILL_KUBERNETES_CONFIG"), ("ray", "TIDEMILL_RAY_ADDRESS")]
)
async def test_a_node_without_the_cluster_says_what_to_set(executor: str, setting: str) -> None:
    with pytest.raises(tm.DefinitionError, match=f"executor '{executor}' is not configured: set .*{setting}"):
        async with tm.Node(load=[cluster_flow(executor)]):
            pass
