"""The unit costs: what one event and one task run cost each part of an installation, as the kept results have them."""

from pathlib import Path
from typing import Any

import msgspec

from benchmarks.result_files import KEPT, read_results

UNIT_COSTS, KEYS = "unit_costs", "keys"
"""The benchmarks that measure them."""


class UnitCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one core, unless a field says otherwise. `bench_unit_costs` measures them, and `bench_keys` bytes."""

    machine: str
    """Processor, cores and Python, for readers who compare."""
    measured_on: str

    event: float
    """A typed event through accumulator, reactor and graph, pushed in process by a handle."""
    event_from_kafka: float
    """An event of one of 1,000 keys, read from Kafka as JSON, with running state, between checkpoints; all threads."""
    event_from_websocket: float
    """An event of a frame with 256, received, decoded and acknowledged; with a graph of one node."""
    event_committed: float
    """The same event as `event`, with a commit of PostgreSQL before it is acknowledged: the node's share."""
    event_committed_database: float
    """The share of the database."""
    key_stored: float
    """A changed key with running state that a checkpoint writes to PostgreSQL, with many others: the node's share."""
    key_stored_database: float
    """The share of the database."""

    task_leader: float
    """A task run that a worker executes: planning, claims and reports, on the leader."""
    task_worker: float
    """The same on the worker: claim, fork, code that does nothing, report."""
    task_database: float
    """The same on the database."""
    task_bytes: float
    """Bytes that a finished task run leaves in the database, with its attempts, events and indexes."""

    takeover: float
    """Seconds from the death of a host until others run its partitions, with the default lease."""

    key_bytes: float
    """Bytes of memory of an active key, with three small boundaries."""
    idle_key_bytes: float
    """The same of a key that is only in the store."""

    @property
    def commit(self) -> float:
        """What a commit adds to an event, on the node: without the ingestion and the firing, which any event costs."""
        return max(0.0, self.event_committed - self.event)


def read_costs(folder: Path = KEPT) -> UnitCosts:
    """Read the costs from the results of a folder."""
    results = read_results(folder)
    measured, memory = results[UNIT_COSTS], results[KEYS].figures["memory"]
    figures: dict[str, Any] = {
        **measured.figures,
        "key_bytes": memory["bytes per active key"],
        "idle_key_bytes": memory["bytes per idle key"],
        "machine": measured.machine.summary,
        "measured_on": measured.machine.measured_on,
    }
    return msgspec.convert(figures, UnitCosts)
