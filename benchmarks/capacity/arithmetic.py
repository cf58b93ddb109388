"""The arithmetic: how many processes, cores and bytes a load needs. Multiplication and rounding up, nothing else."""

import math

import msgspec

from benchmarks.capacity.costs import UnitCosts

UTILISATION = 0.6
"""The share of a core that is planned for. The rest absorbs bursts and uneven keys."""
UTILISATION_AFTER_LOSS = 0.8
"""The same while one host is dead and the others do its work, and process what has gathered."""


class StreamLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of events for one keyed reactor."""

    rate: float
    """Events per second."""
    partitions: int
    hottest_key: float
    """The share of events of the most frequent key."""
    keys: int = 1_000
    checkpoint_interval: float = 0.2
    """Seconds between two checkpoints, each of which writes the keys that have changed."""

    @property
    def keys_stored(self) -> float:
        """Keys that checkpoints write per second, at most: each key that has changed once per checkpoint."""
        return min(self.keys / self.checkpoint_interval, self.rate)


class StreamPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts for a stream. Each is a process that uses one core."""

    cost: float
    hosts: int

    @property
    def capacity(self) -> float:
        """Events per second that one host can process, at most."""
        return 1 / self.cost


def plan_stream(load: StreamLoad, cost: float) -> StreamPlan:
    """Return the hosts for a stream whose events cost this much.

    Neither a partition nor a key is divided. So the fullest host decides: it has one partition more than others, and
    the hottest key.
    """
    for hosts in range(1, load.partitions + 1):
        if _share_of_fullest(load, hosts) * load.rate * cost <= UTILISATION and (
            hosts == 1 or _share_of_fullest(load, hosts - 1) * load.rate * cost <= UTILISATION_AFTER_LOSS
        ):
            return StreamPlan(cost=cost, hosts=hosts)
    at_most = UTILISATION / (load.rate * cost)
    raise ValueError(
        f"no host may have more than {at_most:.2%} of the events: {load.partitions} partitions, or a key with "
        f"{load.hottest_key:.2%} of them, do not allow that"
    )


def event_cost(load: StreamLoad, costs: UnitCosts, *, is_committed: bool = False) -> float:
    """Return what an event from Kafka costs its host, with its share of the checkpoints.

    The parts do not overlap: an event from Kafka is ingested and fires, a changed key is stored, an event is committed.
    """
    stored = load.keys_stored / load.rate * costs.key_stored
    return costs.event_from_kafka + stored + (costs.commit if is_committed else 0.0)


def database_cores(load: StreamLoad, costs: UnitCosts, *, is_committed: bool = False) -> float:
    """Return the cores that PostgreSQL needs for the checkpoints, and for the events if it commits each."""
    committed = load.rate * costs.event_committed_database if is_committed else 0.0
    return load.keys_stored * costs.key_stored_database + committed


def _share_of_fullest(load: StreamLoad, hosts: int) -> float:
    """Return the share of events of the host with the most partitions and the hottest key."""
    even = math.ceil(load.partitions / hosts) / load.partitions
    return min(1.0, even * (1 - load.hottest_key) + load.hottest_key)


class TaskLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Task runs that workers execute."""

    per_day: float
    busiest_hour: float
    """The share of the day's task runs in its busiest hour."""
    on_the_hour: float
    """The share of an hour's task runs that become ready at its first second."""
    duration: float
    """Seconds that a task runs, on average."""
    patience: float
    """Seconds by which the last task of the hour's burst may begin late."""

    @property
    def peak_rate(self) -> float:
        """Task runs per second in the busiest hour."""
        return self.per_day * self.busiest_hour / 3600

    @property
    def burst(self) -> float:
        """Task runs that become ready at once in the busiest hour."""
        return self.per_day * self.busiest_hour * self.on_the_hour


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What task runs need."""

    leader_share: float
    """Of one core, in the busiest hour on average."""
    burst_seconds: float
    """How long the leader needs to hand out the burst."""
    database_cores: float
    """In the busiest hour on average."""
    database_cores_in_burst: float
    """While the leader plans the burst, as fast as it can."""
    slots: int
    """Slots of workers."""
    worker_cores: float
    """Cores that workers need beside the code of the tasks, in the busiest hour on average."""
    worker_cores_in_burst: float
    """While the leader plans the burst, as fast as it can."""
    bytes_per_day: float


def plan_tasks(load: TaskLoad, costs: UnitCosts) -> TaskPlan:
    """Return what task runs need.

    The leader limits how many begin in a second, and so how many run at the same time: more slots stay empty.
    """
    steady_slots = load.peak_rate * (1 - load.on_the_hour) * load.duration
    burst_slots = load.burst * load.duration / (load.patience + load.duration)
    planned_at_most = 1 / costs.task_leader
    planned_in_burst = min(planned_at_most, load.burst + load.peak_rate * (1 - load.on_the_hour))
    return TaskPlan(
        leader_share=load.peak_rate * costs.task_leader,
        burst_seconds=load.burst * costs.task_leader,  # what comes later waits behind it
        database_cores=load.peak_rate * costs.task_database,
        database_cores_in_burst=planned_in_burst * costs.task_database,
        slots=math.ceil(min((steady_slots + burst_slots) / UTILISATION, planned_at_most * load.duration)),
        worker_cores=load.peak_rate * costs.task_worker,
        worker_cores_in_burst=planned_in_burst * costs.task_worker,
        bytes_per_day=load.per_day * costs.task_bytes,
    )
