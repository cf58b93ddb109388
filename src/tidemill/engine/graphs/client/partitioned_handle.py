"""The operator's handle of a keyed reactor. What is read without await comes from the partitions on this node."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from tidemill.engine.graphs.client.keyed_operations import KeyedOperations
from tidemill.engine.graphs.client.local_firings import LocalFirings
from tidemill.engine.graphs.client.merged_states import (
    merge_states,
    state_in_whole,
)
from tidemill.engine.graphs.client.relayed_sources import RelayedSources
from tidemill.engine.graphs.dead_letters import DeadLetterQueue, check_editable
from tidemill.engine.graphs.handle import ReactorHandle
from tidemill.engine.graphs.loaded_graphs import partitioned_error
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.sharing import running_numbers
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.graphs.key_forms import key_from_json
from tidemill.graphs.outcomes import DeadLetter, Receipt, to_jsonable
from tidemill.graphs.result import Firing, GraphResult, PlainNodeError, plain_result
from tidemill.graphs.state import ReactorState, Recovery
from tidemill.graphs.views import FiringView, GraphResultView, ReactorCommand, ReplayResult
from tidemill.kernel.errors import RequestError


class PartitionedHandle(ReactorHandle):
    """One loaded reactor with a key, for operators. Commands reach the partitions of every node."""

    def __init__(
        self,
        find: Callable[[], PartitionedReactor],
        scheduler: GraphScheduler,
        operations: KeyedOperations,
        reclaim: Callable[[str, str], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(self._refuse_whole, reclaim)
        self._find_keyed = find
        self._loaded = scheduler.loaded
        self._operations = operations
        self._firings = LocalFirings(scheduler, find)
        self._sources = RelayedSources(scheduler)

    def _refuse_whole(self) -> RunningReactor:
        raise partitioned_error("reactor", self.name)

    @property
    def name(self) -> str:
        """The reactor's name."""
        return self._find_keyed().name

    @property
    def _running(self) -> Sequence[RunningReactor]:
        return [one.reactor for one in self._loaded.partitions_of(self._find_keyed())]

    def _handles(self) -> list[ReactorHandle]:
        """Return the handles of the partitions that run here."""
        return [self._handle(one.name) for one in self._running]

    def _handle(self, partition: str) -> ReactorHandle:
        tenant = self._find_keyed().tenant
        return ReactorHandle(lambda: self._loaded.reactor(tenant, partition), self._reclaim)

    def _handle_of(self, key: Any) -> ReactorHandle:
        """Return the handle of the partition that holds a key; RequestError if another node runs it."""
        part, name = self._find_keyed().part_of_key(key), self.name
        if not self._loaded.has_running(part):
            message = f"another node runs the partition of reactor '{name}' that holds the key {key!r}: use `state_of`"
            raise RequestError(message, code="reactor_owned", status=409, reactor=name)
        return self._handle(part.name)

    def _find_handle_of(self, key: Any) -> ReactorHandle | None:
        """Return the handle of the partition that holds a key; None if another node runs it, or is about to."""
        part = self._find_keyed().part_of_key(key)
        return self._handle(part.name) if self._loaded.runs(part) else None

    # -- reading

    def state(self, key: Any = None) -> ReactorState:
        """Return the state of the partitions that run here as that of one reactor; with a key, that of its partition.

        With a key it has the cache, flags and queue of that key.
        """
        if key is not None:
            return state_in_whole(self._handle_of(key).state(key), self.name)
        keyed = self._find_keyed()
        states = [one.state() for one in self._handles()]
        owners = dict.fromkeys(running_numbers(self._loaded, keyed))
        return merge_states(keyed, states, owners, self._sources.states(*keyed.key))

    async def state_of(self, key: Any) -> ReactorState:
        """Return the state of a key, which is read from the store if it is not in memory. Any node may run it."""
        if (handle := self._find_handle_of(key)) is not None:
            return state_in_whole(await handle.state_of(key), self.name)
        return await self._operations.reactor_state(self._find_keyed().tenant, self.name, key)

    def firings(self, limit: int = 50, key: Any = None) -> list[Firing]:
        """Return the newest firings of the partitions that run here, or those of a key, newest first."""
        if limit < 1:
            raise RequestError(f"limit is at least 1, not {limit}", code="invalid_limit")
        return self._handle_of(key).firings(limit, key) if key is not None else self._firings.newest(limit)

    async def next_firing(self, timeout: float | None = None) -> Firing:
        """Return the oldest firing of the partitions that run here and that was not returned before, by any handle.

        Wait up to `timeout` seconds if there is none.
        """
        return await self._firings.next(timeout)

    def events(self, limit: int | None = 50) -> list[Recovery]:
        """Return what the supervisor did with the partitions and sources that run here, newest first."""
        found = [event for one in self._handles() for event in reversed(one.events(limit=None))]
        found += self._sources.recoveries(*self._find_keyed().key)
        return sorted(found, key=lambda event: event.at)[::-1][:limit]

    # -- commands

    async def pause(self) -> ReactorState:
        """Stop firing on criteria, on every node; boundaries are still accepted. Return the state afterwards."""
        return (await self._operations.command(self._find_keyed().tenant, self.name, "pause")).state

    async def resume(self) -> ReactorState:
        """Fire on criteria again, on every node. Return the state afterwards."""
        return (await self._operations.command(self._find_keyed().tenant, self.name, "resume")).state

    async def restart(self) -> ReactorState:
        """Restart the partitions of every node, and the readers of their sources that have failed.

        Return the state afterwards.
        """
        return (await self._operations.command(self._find_keyed().tenant, self.name, "restart")).state

    async def force_fire(self, key: Any = None) -> Firing:
        """Fire a key now with its cache as it is, regardless of the criteria.

        If another node runs its partition, the firing has plain values.
        """
        if (handle := self._find_handle_of(key)) is not None:
            return await handle.force_fire(key)
        return await self._fire_elsewhere("force_fire", None, key)

    async def fire_with(self, inputs: Mapping[str, Any], key: Any = None) -> Firing:
        """Replace the whole cache of a key by these inputs and fire.

        If another node runs its partition, the firing has plain values.
        """
        if (handle := self._find_handle_of(key)) is not None:
            return await handle.fire_with(inputs, key)
        plain = {name: to_jsonable(value) for name, value in inputs.items()}
        return await self._fire_elsewhere("fire_with", plain, key)

    async def _fire_elsewhere(self, command: ReactorCommand, inputs: Mapping[str, Any] | None, key: Any) -> Firing:
        result = await self._operations.command(self._find_keyed().tenant, self.name, command, inputs, key)
        assert result.firing is not None, "a command to fire returns its firing"
        return to_firing(result.firing)

    # -- dead letters

    @property
    def dead_letter_queues(self) -> list[DeadLetterQueue]:
        """The queues of the partitions that run here."""
        return [queue for one in self._handles() for queue in one.dead_letter_queues]

    async def dead_letter(self, dead_letter_id: str) -> DeadLetter:
        """Return a dead letter of any partition; if another node runs it, with plain values."""
        if any(queue.find(dead_letter_id) is not None for queue in self.dead_letter_queues):
            return await super().dead_letter(dead_letter_id)
        tenant = self._find_keyed().tenant
        return await self._operations.dead_letter("reactor", tenant, self.name, dead_letter_id)

    async def drop(self, dead_letter_id: str) -> None:
        """Delete a dead letter of any partition."""
        await self._operations.drop("reactor", self._find_keyed().tenant, self.name, dead_letter_id)

    async def replay(self, dead_letter_id: str, event: Any = None) -> Any:
        """Process a dead letter of any partition again; with `event`, that instead of a dead event.

        If another node runs it, a firing has plain values, and a start returns the id of the run.
        """
        if event is not None:
            return await self._replay_edited(await self.dead_letter(dead_letter_id), event)
        for one in self._handles():
            if any(letter.id == dead_letter_id for letter in await one.dead_letters()):
                return await one.replay(dead_letter_id)
        tenant = self._find_keyed().tenant
        return to_outcome(await self._operations.replay("reactor", tenant, self.name, dead_letter_id))

    async def _replay_edited(self, letter: DeadLetter, event: Any) -> Receipt:
        tenant = self._find_keyed().tenant
        is_event = letter.kind == "event"
        check_editable(letter, (await self._operations.accumulator(tenant, letter.source)).kind if is_event else "")
        receipt = await self._operations.push(tenant, letter.source, event)
        if receipt.accepted:
            await self.drop(letter.id)
        return receipt


def to_firing(view: FiringView) -> Firing:
    """Return a firing of another node. Inputs and outputs are plain values."""
    return Firing(
        id=view.id,
        reactor=view.reactor,
        at=view.at,
        inputs=view.inputs,
        results={name: _to_result(one) for name, one in view.results.items()},
        duration=view.duration,
        manual=view.manual,
        degraded=view.degraded,
        attempt=view.attempt,
        key=key_from_json(view.key),
        log=view.log,
    )


def to_outcome(result: ReplayResult) -> Any:
    """Return what a replay on another node became: a Receipt, a Firing, or the id of a run; None for no run."""
    return result.receipt or (result.run if result.firing is None else to_firing(result.firing))


def _to_result(view: GraphResultView) -> GraphResult:
    failure = view.error
    error = None if failure is None else PlainNodeError(failure.node, failure.message, failure.traceback)
    return plain_result(view.outputs, view.ran, view.skipped, error)
