"""Runs tasks of clusters in the process of a test: a test node has no cluster."""

from typing import Any

from tidemill.engine.workflows.executors.code import LoadedWorkflows
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.interface import AttemptListener
from tidemill.kernel.clock import Clock


class ClusterStandIn(InProcess):
    """The executor `in_process`, under the name of a cluster's."""

    def __init__(
        self, name: str, workflows: LoadedWorkflows, listener: AttemptListener, clock: Clock, **options: Any
    ) -> None:
        super().__init__(workflows, listener, clock, **options)
        self.name = name
