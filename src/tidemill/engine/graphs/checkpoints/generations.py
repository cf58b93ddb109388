"""Chooses the snapshot generations to restore from.

Of each part the newest intact generation counts. If one is damaged, all parts of its group step back together to the
moment before, so that an offset never covers more than its reactor has seen.
"""

from collections.abc import Iterable, Sequence

from tidemill.engine.graphs.checkpoints.capture import checkpoint_groups
from tidemill.engine.graphs.checkpoints.state_reader import Component, StoredState, part_key
from tidemill.engine.graphs.durability.checksums import is_part_intact
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.storage.graph_ports import PartKey, SnapshotPart


class GenerationChooser:
    """Chooses one generation per part, group by group. Reads the stored state and changes nothing."""

    def __init__(self, stored_state: StoredState) -> None:
        self._parts = stored_state.parts
        self.problems: list[tuple[Component, str]] = []
        """The damaged generations, in words, and the component of each."""

    def choose(self, reactors: Sequence[RunningReactor], restored: Iterable[Component]) -> dict[PartKey, SnapshotPart]:
        """Return the newest intact generations of one moment per group, for the components being restored."""
        chosen: dict[PartKey, SnapshotPart] = {}
        included = set(restored)
        for group in checkpoint_groups(one for one in reactors if one.durability.is_durable):
            components: list[Component] = [*group.reactors, *group.accumulators]
            chosen |= self._choose_for_group([one for one in components if one in included])
        return chosen

    def _choose_for_group(self, group: Sequence[Component]) -> dict[PartKey, SnapshotPart]:
        intact_parts: dict[PartKey, list[SnapshotPart]] = {}
        limit = float("inf")
        for component in group:
            stored = self._parts.get(part_key(component), [])
            intact = [part for part in stored if is_part_intact(part)]
            intact_parts[part_key(component)] = intact
            if len(intact) < len(stored):
                limit = min(limit, self._report_damage(component, stored, intact))
        return {key: _newest_up_to(limit, parts) for key, parts in intact_parts.items() if parts}

    def _report_damage(self, component: Component, stored: list[SnapshotPart], intact: list[SnapshotPart]) -> float:
        """Report the damaged generations; return the moment that the rest of the group must not be ahead of."""
        damaged = [part for part in stored if not is_part_intact(part)]
        which = " and ".join(f"generation {part.generation} of {part.taken_at:%Y-%m-%d %H:%M:%S}" for part in damaged)
        if not intact:
            self._report(component, f"its snapshot is damaged ({which}) and there is no other: it starts empty")
            return float("inf")
        if all(_is_surely_older(part, intact[0]) for part in damaged):
            self._report(component, f"an older snapshot is damaged ({which}); the newest one is intact and is used")
            return float("inf")
        self._report(component, f"its snapshot is damaged ({which}); generation {intact[0].generation} is used instead")
        return intact[0].moment

    def _report(self, component: Component, reason: str) -> None:
        self.problems.append((component, reason))


def _newest_up_to(limit: float, parts: list[SnapshotPart]) -> SnapshotPart:
    """Return the newest part up to a moment, or the oldest one if all are newer."""
    return next((part for part in parts if part.moment <= limit), parts[-1])


def _is_surely_older(damaged: SnapshotPart, intact: SnapshotPart) -> bool:
    """Return whether a damaged part is certainly the older one: both its numbers must say so, as one may be damaged."""
    return damaged.generation == intact.generation - 1 and damaged.moment < intact.moment
