"""Simulates a stream on the hosts that the arithmetic gives it: bursts, uneven keys, and a host that dies.

The arithmetic multiplies averages. This checks it where averages mislead: on the busiest host, and in the backlog
after a death. Time passes in slices, and a backlog is what a host has not processed at the end of one. The rate is the
same within a second, so shorter slices show the same backlogs, and beside them only the queues of a few events that
arrive at one moment.

Arrivals at partitions are Poisson distributed, so those of all partitions of a host are too, with the sum of the rates.
Hence a host is simulated as a whole; its partitions count only when they move to other hosts.
"""

from random import Random

import msgspec

from benchmarks.capacity.arithmetic import StreamLoad, StreamPlan
from benchmarks.capacity.random_numbers import poisson

SLICES_PER_SECOND = 10
SLICE = 1 / SLICES_PER_SECOND
WOBBLE = 0.15  # standard deviation of a second's rate, as a share of the rate
UNEVENNESS = 0.1  # standard deviation of a partition's share, as a share of it: keys do not hash evenly


class StreamOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a stream."""

    busiest: float
    """The utilisation of the busiest host, before one of them died."""
    p99_wait: float
    """Seconds for which an event waits for those before it: the 99th percentile, before a host died."""
    caught_up_after: float | None = None
    """Seconds from the death of a host until others have processed its backlog; None if that did not happen."""


def simulate_stream(
    load: StreamLoad, plan: StreamPlan, *, seconds: float, takeover: float = 0.0, seed: int = 1
) -> StreamOutcome:
    """Let a stream run for a while; then a host dies, and after `takeover` seconds the others own its partitions."""
    hosts = _Hosts(load, plan, Random(seed))
    slices = round(seconds * SLICES_PER_SECOND)
    for number in range(slices):
        hosts.pass_slice(number)
    busiest = max(hosts.offered) / (slices * hosts.per_slice)
    p99 = sorted(hosts.waits)[int(len(hosts.waits) * 0.99)]
    caught_up = _survive_death(hosts, slices, takeover) if plan.hosts > 1 else None
    return StreamOutcome(busiest=busiest, p99_wait=p99, caught_up_after=caught_up)


def _survive_death(hosts: "_Hosts", slices: int, takeover: float) -> float | None:
    """Return how long it takes until the backlog of a dead host is processed, as far as `slices` go."""
    hosts.dead = 0  # the one with the hottest key
    for number in range(slices):
        if number == round(takeover * SLICES_PER_SECOND):
            hosts.reassign()
        hosts.pass_slice(number)
        if hosts.behind is not None and not hosts.behind:
            return (number + 1) * SLICE
    return None


class _Hosts:
    """The hosts, the share of events that each gets, and the events that wait at it."""

    def __init__(self, load: StreamLoad, plan: StreamPlan, rng: Random) -> None:
        self.dead: int | None = None
        self.behind: set[int] | None = None
        """The hosts that took partitions over, and have not processed everything since; None before that."""
        self.per_slice = SLICE / plan.cost  # events that a host can process
        self.offered = [0.0] * plan.hosts
        self.waits: list[float] = []
        self._rate = load.rate
        self._cost = plan.cost
        self._rng = rng
        partitions = _partition_shares(load, rng)
        self._partitions = [partitions[host :: plan.hosts] for host in range(plan.hosts)]
        self._shares = [sum(shares) for shares in self._partitions]
        self._backlog = [0.0] * plan.hosts
        self._second_rate = load.rate

    def pass_slice(self, number: int) -> None:
        """Let events arrive for a slice, and let every living host process what it can."""
        if number % SLICES_PER_SECOND == 0:
            self._second_rate = self._rate * max(0.0, self._rng.gauss(1.0, WOBBLE))
        for host, share in enumerate(self._shares):
            arrived = poisson(self._rng, self._second_rate * share * SLICE)
            waiting = self._backlog[host] + arrived
            left = waiting if host == self.dead else max(0.0, waiting - self.per_slice)
            self._backlog[host] = left
            if self.dead is None:
                self.offered[host] += arrived
                self.waits.append(left * self._cost)
            elif self.behind and not left:
                self.behind.discard(host)

    def reassign(self) -> None:
        """Give the partitions of the dead host, and what waits in them, to the others, the emptiest first."""
        assert self.dead is not None
        backlog, whole = self._backlog[self.dead], self._shares[self.dead]
        counts = {host: len(shares) for host, shares in enumerate(self._partitions) if host != self.dead}
        self.behind = set()
        for share in self._partitions[self.dead]:
            emptiest = min(counts, key=lambda host: (counts[host], host))
            counts[emptiest] += 1
            self._shares[emptiest] += share
            self._backlog[emptiest] += backlog * share / whole
            self.behind.add(emptiest)
        self._shares[self.dead] = self._backlog[self.dead] = 0.0


def _partition_shares(load: StreamLoad, rng: Random) -> list[float]:
    """Return the share of events of each partition; the first one has the hottest key."""
    weights = [max(0.0, rng.gauss(1.0, UNEVENNESS)) for _ in range(load.partitions)]
    shares = [(1 - load.hottest_key) * weight / sum(weights) for weight in weights]
    shares[0] += load.hottest_key
    return shares
