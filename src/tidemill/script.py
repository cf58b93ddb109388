"""A node for a script or a shell: one workflow, here and now, as it was declared, whatever the script lacks."""

from collections.abc import Iterator

from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.node import Node
from tidemill.workflows.workflow import Workflow

UNLIMITED_POOL_SLOTS = (
    1_000_000  # places in a pool: the limits are for nodes that share something, and are theirs to set
)


class ScriptNode(Node):
    """Runs one workflow: no schedule and no trigger starts it, and each pool that it names has room for everything.

    A task that names an executor which is not here runs at the node's own. The version is that of the workflow as
    declared, so that what is kept of a run can be continued by any other node.
    """

    def __init__(
        self,
        workflow: Workflow,
        store: str | None = None,
        *,
        executor: str = "in_process",
        concurrency: int = 8,
        settings: Settings | None = None,
    ) -> None:
        self._workflow = workflow
        self._executor = executor
        super().__init__(
            store,
            load=[workflow.standalone()],
            settings=settings,
            executor=executor,
            concurrency=concurrency,
            pools={task.pool: UNLIMITED_POOL_SLOTS for task in workflow.tasks if task.pool is not None},
        )

    @property
    def _substitutes_executor(self) -> bool:
        return True

    def executor_warnings(self) -> Iterator[str]:
        """Yield a sentence for each executor that tasks name, and that is not here."""
        known = self._workflows.executors
        tasks: dict[str, list[str]] = {}
        for task in self._workflow.tasks:
            if task.executor is not None and task.executor not in known:
                tasks.setdefault(task.executor, []).append(f"'{task.name}'")
        for executor, names in tasks.items():
            hint = did_you_mean(executor, known)
            verb = "runs" if len(names) == 1 else "run"
            yield f"there is no executor '{executor}' here{hint}: {', '.join(names)} {verb} at '{self._executor}'"

    def still_running_tasks(self) -> list[str]:
        """Return the tasks whose code still runs here, although nobody waits for what comes of it."""
        return sorted({key.task for key in self._workflows.attempts.running()})
