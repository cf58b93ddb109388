"""The unit costs: what one event and one task run cost each part of an installation, as they were measured."""

from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("unit_costs.json")


class UnitCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one core, unless a field says otherwise. `bench_unit_costs` measures them."""

    machine: str
    """Processor, cores and Python, for readers who compare."""
    measured_on: str

    event: float
    """A typed event through accumulator, reactor and graph, pushed in process by a handle."""
    event_from_kafka: float
    """An event of one of 1,000 keys, read from Kafka as JSON, with running state and snapshots; all threads."""
    event_from_websocket: float
    """An event of a frame with 256, received, decoded and acknowledged; with a graph of one node."""
    event_committed: float
    """An event that PostgreSQL commits before it is acknowledged: the node's share."""
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


def read_costs(file: Path = FILE) -> UnitCosts:
    """Read the costs that the documentation shows."""
    return msgspec.json.decode(file.read_bytes(), type=UnitCosts)


def write_costs(costs: UnitCosts, file: Path = FILE) -> None:
    """Keep costs for the documentation."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(costs), indent=2) + b"\n")
