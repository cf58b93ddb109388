"""The five kinds of accumulators of a keyed reactor."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.batch import Batch
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.kinds import Passthrough, Window
from tidemill.engine.graphs.accumulators.polling import Polling
from tidemill.engine.graphs.dead_letters import BatchedEvents
from tidemill.engine.graphs.keys.key_states import KeyState
from tidemill.engine.graphs.keys.keyed_ingest import KeyedIngest
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.graphs.result import Receipt


class KeyedPassthrough(KeyedIngest, Passthrough):
    """A passthrough accumulator of a keyed reactor."""


