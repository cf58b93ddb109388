"""Sources that a test gives to the streams of its node, in place of those that they declare."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from tidemill.engine.graphs.sources.reader import IteratorReader, SourceReader
from tidemill.graphs.definition import Accumulator, Source
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean


class Events:
    """A source of a list of events, of which the checkpoint counts those that were read. It ends with the last one."""

    def __init__(self, events: Iterable[Any]) -> None:
        self._events = list(events)

    async def start(self, checkpoint: int | None) -> AsyncIterator[tuple[Any, int]]:
        """Yield the events after a checkpoint."""
        for number, event in enumerate(self._events[checkpoint or 0 :], (checkpoint or 0) + 1):
            yield event, number


class GivenSources:
    """Opens the given source of a stream; other streams are live without one."""

    def __init__(self, given: Mapping[str, Source | Iterable[Any]]) -> None:
        self._sources = {name: one if isinstance(one, Source) else Events(one) for name, one in given.items()}

    def open_reader(
        self, accumulator: Accumulator, tenant: str, settings: Settings, clock: Clock
    ) -> SourceReader | None:
        """Return a reader of the source that is given to a stream; None if there is none."""
        source = self._sources.get(accumulator.declared_name)
        return None if source is None else IteratorReader(source, accumulator.name, settings, clock, tenant)

    def check(self, streams: Iterable[Accumulator]) -> None:
        """Raise DefinitionError if a source is given to what is not a loaded stream."""
        known = {one.declared_name for one in streams}
        if unknown := list(self._find_unknown(known)):
            raise DefinitionError.single("tm.testing.node", "; ".join(unknown))

    def _find_unknown(self, known: set[str]) -> Iterator[str]:
        for name in self._sources:
            if name not in known:
                yield f"sources= names '{name}', which is not a stream of what is loaded{did_you_mean(name, known)}"
