"""The worker: runs attempts of tasks with the executor `worker`, for the nodes that plan the runs of its store."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.engine.workflows.executors.interface import Executor
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.limits import WORD_RULE, is_word, parse_labels
from tidemill.kernel.settings import Settings
from tidemill.node import Node
from tidemill.node_arguments import ExecutorContext, NodeProfile
from tidemill.telemetry import events
from tidemill.workflows.definition import WORKER_EXECUTOR

logger = logging.getLogger(__name__)

WORKER_DEFAULTS = {"edition": "pro", "load_published": True}
"""Settings of a worker unless they are set: it claims for all its free slots at once."""

DRAIN_CHECK_INTERVAL = 0.02  # seconds between two checks whether everything has ended


class WorkerProcesses(Subprocess):
    """The executor of a worker: that of subprocesses, under the name by which tasks ask for a worker."""

    name = WORKER_EXECUTOR


class WorkerNode(Node):
    """Claims attempts of tasks with the executor `worker` whose labels it has, and runs each in a separate process.

    It does not plan runs, poll triggers or run reactors. It has the code of what is published in its store, and of what
    it is given: of packages, it loads only what their tasks need.
    """

    def __init__(
        self,
        store: str,
        *,
        load: Iterable[Any] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        concurrency: int = 8,
        labels: Iterable[str] = (),
        name: str | None = None,
    ) -> None:
        profile = NodeProfile(
            kind="worker", name=_check_name(name), labels=_check_labels(labels), make_executors=_make_executors
        )
        read = Settings.read(settings, file=WORKER_DEFAULTS)
        super().__init__(store, load=load, settings=read, concurrency=concurrency, _profile=profile)

    @property
    def name(self) -> str:
        """The name under which the store lists it."""
        return self._owner.name

    @property
    def running_count(self) -> int:
        """The number of attempts that run here."""
        return len(self._workflows.attempts.running())

    async def drain(self) -> None:
        """Claim nothing more, and wait until everything that was claimed has ended and is written."""
        self._workflows.stop_claiming()
        logger.info(events.WORKER_DRAINING, extra={"running": self.running_count})
        while not self._workflows.is_drained:
            await self._clock.sleep(DRAIN_CHECK_INTERVAL)


def _make_executors(context: ExecutorContext) -> dict[str, Executor]:
    lease = context.settings.heartbeat_timeout - context.settings.heartbeat_interval
    executor = WorkerProcesses(context.workflows, context.listener, context.clock, lease=lease, **context.options)
    return {executor.name: executor}


def _check_labels(labels: Iterable[str]) -> tuple[str, ...]:
    try:
        return parse_labels(labels)
    except ValueError as error:
        raise DefinitionError.single("worker", str(error)) from error


def _check_name(name: str | None) -> str | None:
    if name is not None and not is_word(name):
        raise DefinitionError.single("worker", f"a worker has a name, {WORD_RULE}, not {name!r}")
    return name
