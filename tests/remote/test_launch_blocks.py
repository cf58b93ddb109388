"""Failed launches: a tenant whose units are rejected waits alone; a cluster that does not answer is left alone."""

import pytest

from tests.remote.scripted_units import Cluster, RemoteTestNode, make_node_class
from tests.remote.test_failure_matrix import flow
from tidemill.engine.workflows.executors.remote.interface import ClusterUnavailableError
from tidemill.engine.workflows.worker.claimer import blocked_tasks
from tidemill.kernel.errors import OperationError
from tidemill.storage.workflow_ports import VersionTask
from tidemill.workflows.records import VersionKey
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import TaskState


@pytest.fixture
def cluster() -> Cluster:
    """A cluster that takes no unit of the tenant "full"."""
    cluster = Cluster()
    cluster.refusals["full"] = OperationError("exceeded quota")
    return cluster


async def start_refused(node: RemoteTestNode, number: int = 5) -> str:
    """Load the workflow for two tenants, and start runs of the refused one; return one that has been handed back."""
    for tenant in ("full", "other"):
        await node.load(flow, tenant=tenant)
    runs = [await node.start("flow", tenant="full") for _ in range(number)]
    await node.advance("100ms")
    return runs[0].id


async def test_a_tenant_with_a_full_quota_does_not_stop_the_others(cluster: Cluster) -> None:
    """W-5: units of another tenant are launched at once."""
    async with make_node_class(cluster)() as node:
        await start_refused(node)
        run = await node.start("flow", tenant="other")
        await node.advance("100ms")
        assert [key.run for key in cluster.launched] == [run.id]


async def test_a_refused_tenant_is_tried_again_with_growing_pauses(cluster: Cluster) -> None:
    """Launches that fail together count once, and no task is claimed in between."""
    async with make_node_class(cluster)() as node:
        run = await start_refused(node)
        rounds = []
        for _ in range(40):
            before = len(cluster.refused)
            await node.advance("1s")
            rounds.append(len(cluster.refused) - before)
        assert sum(map(bool, rounds)) in (4, 5)  # after 1, 3, 7, 15 and 31 s
        (record,) = await node.store.runs.load([run])
        assert record.tasks[0].state is TaskState.SCHEDULED
        why = await node.run_handle(run, tenant="full").why("work")
        assert why[-1] == "its last attempt was handed back: its unit was not started: exceeded quota"
        cluster.refusals.clear()
        await node.advance("40s")
        assert len(cluster.launched) == 5


async def test_a_cluster_that_does_not_answer_is_asked_by_no_tenant(cluster: Cluster) -> None:
    """The answer would be the same."""
    cluster.refusals = dict.fromkeys(["full", "other"], ClusterUnavailableError("no answer"))
    async with make_node_class(cluster)() as node:
        await start_refused(node, 1)
        await node.start("flow", tenant="other")
        await node.advance("500ms")
        assert len(cluster.refused) == 1
        cluster.refusals.clear()
        await node.advance("3s")
        assert len(cluster.launched) == 2


def test_a_node_that_does_not_lead_claims_no_task_of_a_refused_tenant() -> None:
    """Only the tasks of that tenant, and only those of the executor that refuses it."""
    spec = WorkflowSpec(name="flow", tasks=(TaskSpec(name="work", executor="kubernetes"), TaskSpec(name="rest")))
    specs = {VersionKey(tenant, "flow", "1"): spec for tenant in ("full", "other")}
    found = blocked_tasks({"kubernetes": {"full"}}, specs, lambda task: task.executor or "subprocess")
    assert found == [VersionTask("full", "flow", "1", "work")]
