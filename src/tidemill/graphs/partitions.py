"""Partitions of keyed reactors: their names, their definitions, and their assignment to hosts. Pure."""

from collections.abc import Mapping
from copy import copy

from msgspec.structs import replace

from tidemill.graphs.definition import Accumulator, AccumulatorKind, Kafka, KafkaShare, Reactor
from tidemill.graphs.keys import PartitionId


def declared_name(name: str) -> str:
    """Return the name of the reactor or accumulator that a name is a partition of, or the name itself."""
    partition = PartitionId.parse(name)
    return name if partition is None else partition.name


def partition_reactor(reactor: Reactor, number: int) -> Reactor:
    """Return the definition of one partition of a keyed reactor: `market[3]`, with accumulators such as `trades[3]`.

    Its inputs keep the names that graphs know them by.
    """
    partition = copy(reactor)
    partition.partition = PartitionId(reactor.name, number)
    partition.name = str(partition.partition)
    partition.accumulators = tuple(
        _partition_accumulator(one, number, reactor.partitions) for one in reactor.accumulators
    )
    if isinstance(reactor.key, Mapping):
        named = {getattr(given, "name", given): function for given, function in reactor.key.items()}
        partition.key = {str(PartitionId(str(name), number)): function for name, function in named.items()}
    return partition


def _partition_accumulator(accumulator: Accumulator, number: int, partitions: int) -> Accumulator:
    """Return one partition of an accumulator: it reads its share of a Kafka topic, and no other source."""
    source, partition = accumulator.source, PartitionId(accumulator.name, number)
    if accumulator.kind is AccumulatorKind.POLLING:
        return replace(accumulator, name=str(partition), partition=partition, every=None)
    share = KafkaShare(source, number, partitions) if isinstance(source, Kafka) else None
    return replace(accumulator, name=str(partition), partition=partition, source=share)


def assign_partitions(owners: Mapping[int, str | None], hosts: Mapping[str, int]) -> dict[int, str]:
    """Return the host of each partition, given its current owner, if it has one, and the weights of all hosts.

    The shares are even: each host gets its part by weight, rounded down or up. Moves are as few as such shares allow:
    a host keeps what it owns up to its share. Equal arguments give equal assignments on every node.
    """
    if not hosts:
        return {}
    owned: dict[str, list[int]] = {host: [] for host in sorted(hosts)}
    unassigned: list[int] = []
    for partition, owner in sorted(owners.items()):
        (unassigned if owner is None or owner not in owned else owned[owner]).append(partition)
    shares = _divide(len(owners), hosts, {host: len(partitions) for host, partitions in owned.items()})
    for host, partitions in owned.items():
        unassigned += partitions[shares[host] :]
        del partitions[shares[host] :]
    remaining = iter(sorted(unassigned))
    for host, partitions in owned.items():
        partitions += (next(remaining) for _ in range(shares[host] - len(partitions)))
    return {partition: host for host, partitions in owned.items() for partition in partitions}


def _divide(count: int, hosts: Mapping[str, int], owned: Mapping[str, int]) -> dict[str, int]:
    """Return how many partitions each host gets.

    What rounding down leaves over goes to hosts that would have to give a partition away otherwise, then to those with
    the largest remainders.
    """
    total = sum(hosts.values())
    shares = {host: count * weight // total for host, weight in hosts.items()}
    with_remainder = [host for host, weight in hosts.items() if count * weight % total]
    with_remainder.sort(key=lambda host: (owned[host] <= shares[host], -(count * hosts[host] % total), host))
    for host in with_remainder[: count - sum(shares.values())]:
        shares[host] += 1
    return shares
