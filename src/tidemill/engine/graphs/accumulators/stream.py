"""Streams: accumulators that read a source, and read it again when it is lost.

A source that cannot be reached is no crash: the stream accepts pushes meanwhile, and tries again without end, at
growing intervals. It fails only if its source says that a retry cannot help, by raising `tm.Fail`.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.sources.reader import SourceListener
from tidemill.engine.graphs.supervisor import SHORTEST_SOURCE_RETRY
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS, Fail, is_cancelled_here
from tidemill.kernel.errors import OperationError
from tidemill.sources.interface import Disconnected
from tidemill.telemetry import events
from tidemill.telemetry.logs import FAILURES_PER_REMINDER

logger = logging.getLogger(__name__)

GAP_RECORD_INTERVAL = 60.0  # seconds


class Stream(RunningAccumulator):
    """Reads a source; live only while it is connected."""

    allows_fast_path = True
    started_health = AccumulatorHealth.CONNECTING

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        if runtime.open_reader is None or definition.source is None:  # a partition gets the events of its source
