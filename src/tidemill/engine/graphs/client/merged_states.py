"""Views of a keyed reactor as one reactor: the states of its partitions, merged."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from tidemill.engine.graphs.client.values import FiringPage, HealthReport
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.graphs.health import AccumulatorHealth, ReactorHealth
from tidemill.graphs.keys import PartitionId
from tidemill.graphs.partitions import declared_name
from tidemill.graphs.state import AccumulatorState, KeyCounts, PartitionState, ReactorState

_WORST_REACTOR_FIRST = (
    ReactorHealth.FAILED,
    ReactorHealth.STARTING,
    ReactorHealth.WARMING,
    ReactorHealth.DEGRADED,
    ReactorHealth.LIVE,
)
_WORST_ACCUMULATOR_FIRST = (
    AccumulatorHealth.FAILED,
    AccumulatorHealth.DISCONNECTED,
    AccumulatorHealth.STARTING,
    AccumulatorHealth.CONNECTING,
    AccumulatorHealth.SOCKET_ONLY,
    AccumulatorHealth.LIVE,
)


def merge_states(
    keyed: PartitionedReactor,
    states: Sequence[ReactorState],
    owners: Mapping[int, str | None],
    sources: Sequence[AccumulatorState] = (),
) -> ReactorState:
    """Return the state of a keyed reactor: the worst health of its partitions, and the sums of their counters.

    A source that one node reads for all partitions counts for each of them. A partition that no node runs now is
    starting, and so is a reactor of which no partition is shown.
    """
    definition = keyed.definition
    states = [_with_source_health(one, sources) for one in states]
    by_number = {number: one for one in states if (number := _number_of(one.name)) is not None}
    partitions = [_partition_state(number, owner, by_number.get(number)) for number, owner in sorted(owners.items())]
    fires = sum(one.fires for one in states)
    return ReactorState(
        name=definition.name,
        health=min((one.health for one in partitions), key=_WORST_REACTOR_FIRST.index, default=ReactorHealth.STARTING),
        waiting=_union(one.waiting for one in states),
        disconnected=_union([*(one.disconnected for one in states), _lost_names(sources)]),
        paused=bool(states) and all(one.paused for one in states),
        cache=states[0].cache if states else {},  # of no key
        dirty={name: any(one.dirty.get(name, False) for one in states) for name in definition.accumulator_names},
        queued=sum(one.queued for one in states),
        fires=fires,
        failures=sum(one.failures for one in states),
        incomplete=sum(one.incomplete for one in states),
        dropped=dict(sum((Counter(one.dropped) for one in states), Counter())),
        accumulators=_merge_all(definition.accumulator_names, states, sources),
        subscribers=sorted(keyed.subscribers),
        since=max((one.since for one in states), default=keyed.loaded_at),
        when=str(definition.when),
        strategy=definition.strategy,
        buffered=sum(one.buffered for one in states),
        p50=sum(one.p50 * one.fires for one in states) / fires if fires else 0.0,
        p99=max((one.p99 for one in states), default=0.0),
        keys=_sum_keys([one.keys for one in states if one.keys is not None]),
        partitions=partitions,
        dead_letters=sum(one.dead_letters for one in states),
        counted_since=_newest(one.counted_since for one in states),
        starts=_union(one.starts for one in states),
        owner=definition.about.owner,
        description=definition.about.description,
    )


def _newest(times: Iterable[datetime | None]) -> datetime | None:
    return max((one for one in times if one is not None), default=None)


def _number_of(name: str) -> int | None:
    partition = PartitionId.parse(name)
    return None if partition is None else partition.number


def _partition_state(number: int, owner: str | None, state: ReactorState | None) -> PartitionState:
    if state is None:
        return PartitionState(number=number, owner=owner, health=ReactorHealth.STARTING, fires=0, queued=0)
    return PartitionState(
        number=number, owner=owner, health=state.health, fires=state.fires, queued=state.queued, keys=state.keys
    )


def _sum_keys(counts: Sequence[KeyCounts]) -> KeyCounts:
    return KeyCounts(
        total=sum(one.total for one in counts),
        active=sum(one.active for one in counts),
        stored=sum(one.stored for one in counts),
    )


def _union(lists: Iterable[Sequence[str]]) -> list[str]:
    return sorted({name for names in lists for name in names})


def _merge_all(
    names: Iterable[str], states: Sequence[ReactorState], sources: Sequence[AccumulatorState]
) -> dict[str, AccumulatorState]:
    found: dict[str, list[AccumulatorState]] = {name: [] for name in names}
    for one in [*(one for state in states for one in state.accumulators.values()), *sources]:
        if (name := declared_name(one.name)) in found:  # a host may still run a version with other accumulators
            found[name].append(one)
    return {name: merge_accumulators(name, some) for name, some in found.items() if some}


def state_in_whole(state: ReactorState, name: str) -> ReactorState:
    """Return the state of one partition with the names that the reactor and its accumulators are declared with."""
    accumulators = [replace(one, name=declared_name(one.name)) for one in state.accumulators.values()]
    return replace(
        state,
        name=name,
        waiting=[declared_name(one) for one in state.waiting],
        disconnected=[declared_name(one) for one in state.disconnected],
        accumulators={one.name: one for one in accumulators},
    )


def merge_accumulators(name: str, states: Sequence[AccumulatorState]) -> AccumulatorState:
    """Return the state of an accumulator of a keyed reactor, from those of its partitions."""
    worst = min(states, key=lambda one: _WORST_ACCUMULATOR_FIRST.index(one.health))
    lags = [one.upstream_lag for one in states if one.upstream_lag is not None]
    return replace(
        worst,
        name=name,
        events=sum(one.events for one in states),
        emitted=sum(one.emitted for one in states),
        suppressed=sum(one.suppressed for one in states),
        dead_letters=sum(one.dead_letters for one in states),
        restarts=sum(one.restarts for one in states),
        last_event_at=_newest(one.last_event_at for one in states),
        stuck_since=min((one.stuck_since for one in states if one.stuck_since is not None), default=None),
        buffered=sum(one.buffered for one in states),
        pushes=sum(one.pushes for one in states),
        push_seconds=sum(one.push_seconds for one in states),
        upstream_lag=sum(lags) if lags else None,
        counted_since=_newest(one.counted_since for one in states),
    )


def _with_source_health(state: ReactorState, sources: Sequence[AccumulatorState]) -> ReactorState:
    """Return the state of a partition that depends on sources which one node reads for all partitions."""
    is_degraded = state.health is ReactorHealth.LIVE and _lost_names(sources)
    return replace(state, health=ReactorHealth.DEGRADED) if is_degraded else state


def _lost_names(sources: Sequence[AccumulatorState]) -> list[str]:
    return [one.name for one in sources if not one.health.is_healthy]


def merge_reports(reports: Iterable[HealthReport]) -> HealthReport:
    """Return what is wrong with the partitions of several nodes."""
    found = list(reports)
    return HealthReport(
        unhealthy=[part for one in found for part in one.unhealthy],
        dead_letters={name: count for one in found for name, count in one.dead_letters.items()},
    )


def merge_firings(pages: Sequence[FiringPage], limit: int, after: str | None = None) -> FiringPage:
    """Return the newest firings of the pages of several hosts, newest first; those after the firing `after`, if given.

    Those of the same time keep the order of their page. Ids do not tell it: a partition has several series of them.
    """
    firings = sorted((one for page in pages for one in page.firings), key=lambda one: one.at, reverse=True)
    ids = [] if after is None else [one.id for one in firings]
    start = 0 if after is None else ids.index(after) + 1 if after in ids else len(firings)
    kept = sum(page.kept for page in pages)
    has_more = start + limit < len(firings) or any(page.has_more for page in pages)
    return FiringPage(firings=firings[start : start + limit], kept=kept, has_more=has_more)
