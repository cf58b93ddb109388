"""The Workflow that authors declare: the domain's class, plus `run`, which needs a whole node.

Every other module takes the domain's class, of which this is a subclass.
"""

import asyncio
import importlib
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tidemill.workflows import workflow as domain
from tidemill.workflows.result import RunResult

if TYPE_CHECKING:
    from tidemill.access.secret_source import SecretSource
    from tidemill.api.handles import AsyncRun
    from tidemill.script import ScriptNode

logger = logging.getLogger(__name__)

ASKED_INTERVAL = 0.5
"""Seconds between two looks at what a run asks."""


class Workflow(domain.Workflow):
    """A durable DAG of tasks, wired by parameter name, routed by the class of their return values.

    `params` is a subclass of tm.Params or tm.Boundary that declares the params of a run; without it a run takes any
    keywords. `schedule` takes one schedule, or several with different keys. `triggers` takes what `@tm.trigger`,
    `tm.on_firing` and `tm.on_output` return, or the names of triggers. `unfinished` decides about runs whose
    code has changed: "pin" (the default) keeps the version they began with, "upgrade" continues them with the newest,
    "cancel" cancels them.
    """

    __slots__ = ()

    def run(self, /, **params: Any) -> RunResult:
        """Run the workflow now, on a separate node without a store, and return the result.

        For scripts and tests. It runs as declared, but without schedules and triggers, with unlimited pools, and tasks
        with an unknown executor run in this process. It returns when the handlers of the run have ended. If an event
        loop is running already, the node gets a thread, and this one waits for it. For tasks that read variables or
        secrets, see `given`.
        """
        return self.given().run(**params)

    def given(
        self, *, variables: Mapping[str, Any] | None = None, secrets: "Mapping[str, str] | SecretSource | None" = None
    ) -> "GivenWorkflow":
        """Return what runs the workflow with variables and secrets: `report.given(secrets={...}).run(day=...)`."""
        return GivenWorkflow(self, variables, secrets)


class GivenWorkflow:
    """A workflow with the variables and secrets that its tasks read."""

    __slots__ = ("_values", "_workflow")

    def __init__(
        self,
        workflow: Workflow,
        variables: Mapping[str, Any] | None,
        secrets: "Mapping[str, str] | SecretSource | None",
    ) -> None:
        self._workflow = workflow
        self._values: dict[str, Any] = {"variables": variables, "secrets": secrets}

    def run(self, /, **params: Any) -> RunResult:
        """Run the workflow now, as `Workflow.run` does."""
        workflow, values = self._workflow, self._values
        if not _is_loop_running():
            return asyncio.run(_run_on_script_node(workflow, params, values))
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"workflow {workflow.name}") as threads:
            return threads.submit(lambda: asyncio.run(_run_on_script_node(workflow, params, values))).result()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _run_on_script_node(workflow: Workflow, params: dict[str, Any], values: dict[str, Any]) -> RunResult:
    async with _make_script_node(workflow, values) as node:
        for sentence in node.executor_warnings():
            logger.warning(sentence)
        run = await node.start(workflow.name, params)
        result = await _wait_unless_asked(node, run)
        for sentence in await node.wait_for_handlers(run.id):
            logger.warning(sentence)
        return result


async def _wait_unless_asked(node: "ScriptNode", run: "AsyncRun") -> RunResult:
    """Return the result of a run; a question without a time limit, which no one can answer here, cancels it."""
    while True:
        try:
            return await run.wait(ASKED_INTERVAL)
        except TimeoutError:
            for wait in await node.waits(run):
                if wait.expires_at is None:
                    await run.cancel(
                        f"task '{wait.task}' asks for '{wait.name}', and no one can answer a run without a store: run "
                        "it on a node, and answer with `tidemill wait answer`"
                    )


def _make_script_node(workflow: Workflow, values: dict[str, Any]) -> "ScriptNode":
    """Return a node. It is imported here: a process that runs tasks needs only declarations, and forks faster."""
    node: ScriptNode = importlib.import_module("tidemill.script").ScriptNode(workflow, **values)
    return node
