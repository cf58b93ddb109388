"""Tidemill: computation graphs and durable workflows in one Python package.

Everything an author needs is here: `import tidemill as tm`. Importing it does no I/O, and a name imports its module on
first use: a process that runs one task does not import the node.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tidemill.kernel.version import VERSION

if TYPE_CHECKING:
    from tidemill import sources as sources
    from tidemill import testing as testing
    from tidemill.access.secret_source import SecretSource
    from tidemill.api.waits import Wait
    from tidemill.context import AsyncContext, Context
    from tidemill.engine.graphs.handle import ReactorHandle
    from tidemill.graphs.authoring import batch, passthrough, polling, stream, window
    from tidemill.graphs.definition import Accumulator, Boundary, Kafka, Nats, Reactor, Source, all_of, any_of
    from tidemill.graphs.graph import Graph
    from tidemill.graphs.health import AccumulatorHealth, ReactorHealth
    from tidemill.graphs.outcomes import DeadLetter, Receipt
    from tidemill.graphs.pushes import ProducerPosition, PushProblem, PushSummary, ReceiptRun
    from tidemill.graphs.result import Firing, GraphResult, NodeError
    from tidemill.graphs.state import AccumulatorState, Latency, ReactorState, Recovery
    from tidemill.kernel.author_errors import Fail
    from tidemill.kernel.backoff import Retry
    from tidemill.kernel.errors import (
        DefinitionError,
        FullError,
        OperationError,
        Problem,
        PushStoppedError,
        RequestError,
        TidemillError,
    )
    from tidemill.kernel.settings import Settings
    from tidemill.node import Node
    from tidemill.packages.status import PackageStatus
    from tidemill.workflow import Workflow
    from tidemill.workflows.authoring import trigger
    from tidemill.workflows.definition import Fire, Params, Skip, Trigger
    from tidemill.workflows.handlers import RunReport, TaskFailure
    from tidemill.workflows.on_firing import on_firing
    from tidemill.workflows.on_output import on_output
    from tidemill.workflows.records import TaskError
    from tidemill.workflows.result import RunResult, TaskResult
    from tidemill.workflows.schedule import Cron, Every
    from tidemill.workflows.states import RunState, TaskState
    from tidemill.workflows.steps import StepError
    from tidemill.workflows.waits import Answer

__version__ = VERSION

__all__ = [
    "Accumulator",
    "AccumulatorHealth",
    "AccumulatorState",
    "Answer",
    "AsyncContext",
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
    "ProducerPosition",
    "PushProblem",
    "PushStoppedError",
    "PushSummary",
    "Reactor",
    "ReactorHandle",
    "ReactorHealth",
    "ReactorState",
    "Receipt",
    "ReceiptRun",
    "Recovery",
    "RequestError",
    "Retry",
    "RunReport",
    "RunResult",
    "RunState",
    "SecretSource",
    "Settings",
    "Skip",
    "Source",
    "StepError",
    "TaskError",
    "TaskFailure",
    "TaskResult",
    "TaskState",
    "TidemillError",
    "Trigger",
    "Wait",
    "Workflow",
    "all_of",
    "any_of",
    "batch",
    "on_firing",
    "on_output",
    "passthrough",
    "polling",
    "stream",
    "trigger",
    "window",
]

_MODULE_OF_NAME = {
    "Accumulator": "tidemill.graphs.definition",
    "AccumulatorHealth": "tidemill.graphs.health",
    "AccumulatorState": "tidemill.graphs.state",
    "Answer": "tidemill.workflows.waits",
    "AsyncContext": "tidemill.context",
    "Boundary": "tidemill.graphs.definition",
    "Context": "tidemill.context",
    "Cron": "tidemill.workflows.schedule",
    "DeadLetter": "tidemill.graphs.outcomes",
    "DefinitionError": "tidemill.kernel.errors",
    "Every": "tidemill.workflows.schedule",
    "Fail": "tidemill.kernel.author_errors",
    "Fire": "tidemill.workflows.definition",
    "Firing": "tidemill.graphs.result",
    "FullError": "tidemill.kernel.errors",
    "Graph": "tidemill.graphs.graph",
    "GraphResult": "tidemill.graphs.result",
    "Kafka": "tidemill.graphs.definition",
    "Latency": "tidemill.graphs.state",
    "Nats": "tidemill.graphs.definition",
    "Node": "tidemill.node",
    "NodeError": "tidemill.graphs.result",
    "OperationError": "tidemill.kernel.errors",
    "PackageStatus": "tidemill.packages.status",
    "Params": "tidemill.workflows.definition",
    "Problem": "tidemill.kernel.errors",
    "ProducerPosition": "tidemill.graphs.pushes",
    "PushProblem": "tidemill.graphs.pushes",
    "PushStoppedError": "tidemill.kernel.errors",
    "PushSummary": "tidemill.graphs.pushes",
    "Reactor": "tidemill.graphs.definition",
    "ReactorHandle": "tidemill.engine.graphs.handle",
    "ReactorHealth": "tidemill.graphs.health",
    "ReactorState": "tidemill.graphs.state",
    "Receipt": "tidemill.graphs.outcomes",
    "ReceiptRun": "tidemill.graphs.pushes",
    "Recovery": "tidemill.graphs.state",
    "RequestError": "tidemill.kernel.errors",
    "Retry": "tidemill.kernel.backoff",
    "RunReport": "tidemill.workflows.handlers",
    "RunResult": "tidemill.workflows.result",
    "RunState": "tidemill.workflows.states",
    "SecretSource": "tidemill.access.secret_source",
    "Settings": "tidemill.kernel.settings",
    "Skip": "tidemill.workflows.definition",
    "Source": "tidemill.graphs.definition",
    "StepError": "tidemill.workflows.steps",
    "TaskError": "tidemill.workflows.records",
    "TaskFailure": "tidemill.workflows.handlers",
    "TaskResult": "tidemill.workflows.result",
    "TaskState": "tidemill.workflows.states",
    "TidemillError": "tidemill.kernel.errors",
    "Trigger": "tidemill.workflows.definition",
    "Wait": "tidemill.api.waits",
    "Workflow": "tidemill.workflow",
    "all_of": "tidemill.graphs.definition",
    "any_of": "tidemill.graphs.definition",
    "batch": "tidemill.graphs.authoring",
    "on_firing": "tidemill.workflows.on_firing",
    "on_output": "tidemill.workflows.on_output",
    "passthrough": "tidemill.graphs.authoring",
    "polling": "tidemill.graphs.authoring",
    "stream": "tidemill.graphs.authoring",
    "trigger": "tidemill.workflows.authoring",
    "window": "tidemill.graphs.authoring",
}
"""The module of each public name; the imports above tell type checkers the same."""

_SUBMODULES = ("sources", "testing")
"""Modules that `tm.<name>` imports on first use."""


if not TYPE_CHECKING:  # a checker finds a misspelt name

    def __getattr__(name: str) -> Any:
        """Import a name from its module on first use."""
        if name in _SUBMODULES:
            return importlib.import_module(f"tidemill.{name}")
        if name not in _MODULE_OF_NAME:
            raise AttributeError(f"module 'tidemill' has no attribute '{name}'")
        importlib.import_module("tidemill.telemetry.logs").install_last_resort_handler()
        value = globals()[name] = getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
        return value


def __dir__() -> list[str]:
    """Return every public name, imported or not."""
    return sorted({*globals(), *__all__, *_SUBMODULES})
