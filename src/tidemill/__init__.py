"""Tidemill: computation graphs and durable workflows in one Python package.

Everything an author needs is here: `import tidemill as tm`. Importing it does no I/O.
"""

import importlib
from types import ModuleType

from tidemill.annotations.context import Context
from tidemill.engine.graphs.commands import ReactorHandle
from tidemill.graphs.authoring import batch, passthrough, polling, stream, window
from tidemill.graphs.definition import Accumulator, Boundary, Kafka, Nats, Reactor, Source, all_of, any_of
from tidemill.graphs.graph import Graph
from tidemill.graphs.health import AccumulatorHealth, ReactorHealth
from tidemill.graphs.result import DeadLetter, Firing, GraphResult, NodeError, Receipt
from tidemill.graphs.state import AccumulatorState, Latency, ReactorState, Recovery
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import (
    DefinitionError,
    FullError,
    OperationError,
    Problem,
    RequestError,
    TidemillError,
)
from tidemill.kernel.settings import Settings
from tidemill.node import Node
from tidemill.packages.status import PackageStatus
from tidemill.telemetry.logs import be_readable
from tidemill.workflow import Workflow
from tidemill.workflows.authoring import on_firing, trigger
from tidemill.workflows.definition import Fail, Fire, Params, Skip, Trigger
from tidemill.workflows.records import TaskError
from tidemill.workflows.result import RunResult, TaskResult
from tidemill.workflows.schedule import Cron, Every
from tidemill.workflows.states import RunState, TaskState

__version__ = "0.1.0"

be_readable()

__all__ = [
    "Accumulator",
    "AccumulatorHealth",
    "AccumulatorState",
    "Boundary",
    "Context",
    "Cron",
    "DeadLetter",
    "DefinitionError",
    "Every",
    "Fail",
    "Fire",
    "Firing",
    "FullError",
    "Graph",
    "GraphResult",
    "Kafka",
    "Latency",
    "Nats",
    "Node",
    "NodeError",
    "OperationError",
    "PackageStatus",
    "Params",
    "Problem",
    "Reactor",
    "ReactorHandle",
    "ReactorHealth",
    "ReactorState",
    "Receipt",
    "Recovery",
    "RequestError",
    "Retry",
    "RunResult",
    "RunState",
    "Settings",
    "Skip",
    "Source",
    "TaskError",
    "TaskResult",
    "TaskState",
    "TidemillError",
    "Trigger",
    "Workflow",
    "all_of",
    "any_of",
    "batch",
    "on_firing",
    "passthrough",
    "polling",
    "stream",
    "trigger",
    "window",
]


def __getattr__(name: str) -> ModuleType:
    """Import `tidemill.testing` when it is first asked for: programs that do not test do not pay for it."""
    if name == "testing":
        return importlib.import_module("tidemill.testing")
    raise AttributeError(f"module 'tidemill' has no attribute '{name}'")
