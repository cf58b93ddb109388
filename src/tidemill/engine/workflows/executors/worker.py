"""Runs the attempts that a worker has claimed, each in a separate process."""

from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.workflows.definition import WORKER_EXECUTOR


class WorkerProcesses(Subprocess):
    """The executor of a worker: that of subprocesses, under the name by which tasks ask for a worker."""

    name = WORKER_EXECUTOR
