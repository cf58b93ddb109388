"""The node of a script or a shell: runs one workflow as declared, without schedules and triggers."""

from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.access.secret_source import SecretSource
from tidemill.kernel.errors import OperationError
from tidemill.kernel.limits import DEFAULT_CONCURRENCY
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.node import Node
from tidemill.node_arguments import NodeProfile
from tidemill.workflows.definition import Task
from tidemill.workflows.workflow import Workflow

UNLIMITED_POOL_SLOTS = 1_000_000  # a pool's limit protects what processes share: without one in the store, none do


class ScriptNode(Node):
    """Runs one workflow: no schedule or trigger starts it, and pools that its store has no size of have no limit.

    A task that names an unknown executor runs at the node's own. The version is that of the declared workflow, so that
    any other node can continue a stored run.
    """

    def __init__(
        self,
        workflow: Workflow,
        store: str | None = None,
        *,
        executor: str = "in_process",
        concurrency: int = DEFAULT_CONCURRENCY,
        settings: Settings | None = None,
        variables: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | SecretSource | None = None,
    ) -> None:
        self._workflow = workflow
        self._executor = executor
        pools = {task.pool: UNLIMITED_POOL_SLOTS for task in self._tasks() if task.pool is not None}
        super().__init__(
            store,
            load=[workflow.standalone()],
            settings=settings,
            executor=executor,
            concurrency=concurrency,
            variables=variables,
            secrets=secrets,
            _profile=NodeProfile(substitutes_executor=True, assumed_pools=pools),
        )

    def _tasks(self) -> Iterator[Task]:
        """Yield the tasks and the handlers."""
        return (task for one in self._workflow.family for task in one.tasks)

    async def wait_for_handlers(self, run: str) -> list[str]:
        """Wait until the handlers that the end of a run has called have ended; return a sentence for each failure."""
        caller, client, problems = self._caller(None), self._workflows.client, list[str]()
        for called in await client.runs.handler_runs(caller, run):
            try:
                (await client.watcher.wait(caller, called.run.id)).raise_for_status()
            except OperationError as error:
                problems.append(str(error))
        return problems

    def executor_warnings(self) -> Iterator[str]:
        """Yield a sentence for each unknown executor that tasks name."""
        known = self._workflows.executors
        tasks: dict[str, list[str]] = {}
        for task in self._tasks():
            if task.executor is not None and task.executor not in known:
                tasks.setdefault(task.executor, []).append(f"'{task.name}'")
        for executor, names in tasks.items():
            hint = did_you_mean(executor, known)
            verb = "runs" if len(names) == 1 else "run"
            yield f"there is no executor '{executor}' here{hint}: {', '.join(names)} {verb} at '{self._executor}'"

    def still_running_tasks(self) -> list[str]:
        """Return the tasks whose code still runs here after their run has ended."""
        return sorted({key.task for key in self._workflows.attempts.running()})
