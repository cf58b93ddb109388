"""The source that the contract suite tests, and the server behind it: what the author of a source supplies."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from tidemill.graphs.definition import Source

WITHOUT_SERVER = "this check stops the server: write stop_server and start_server, or use checks(server=False)"

WITHOUT_LOSSES = "this check lets the server drop events: write lose_events, or leave out checks(loses=True)"


class SourceUnderTest(ABC):
    """A source, and the server that it reads. Subclass it for your source; one object serves one check.

    Run a real server, in a separate process, so that the checks can stop it. A source that reads no server, such as
    one of files, leaves out `stop_server`, `start_server` and `open_connections`.

    `async with` starts the server, if there is one, and stops it in the end.
    """

    async def __aenter__(self) -> Self:
        if self._has_server:
            await self.start_server()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._has_server:
            await self.stop_server()

    @property
    def _has_server(self) -> bool:
        return type(self).start_server is not SourceUnderTest.start_server

    @abstractmethod
    def make_source(self) -> Source:
        """Return the source. The checks start it several times, one after the other."""

    @abstractmethod
    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Add events to the end of what the source reads, such as `{"number": 7, "filler": "…"}`.

        Whatever the source makes of them must decode to the same fields.
        """

    @abstractmethod
    async def append_invalid(self) -> None:
        """Add one event that has no `number`, or that cannot be decoded at all."""

    async def stop_server(self) -> None:
        """End the server as a crash would, if it runs; what was appended must survive."""
        raise AssertionError(WITHOUT_SERVER)

    async def start_server(self) -> None:
        """Start the server again, at the same address. Return when it accepts connections."""
        raise AssertionError(WITHOUT_SERVER)

    async def lose_events(self) -> None:
        """Drop every event that the server has, as one does that keeps only the newest; later ones are kept."""
        raise AssertionError(WITHOUT_LOSSES)

    async def open_connections(self) -> int | None:
        """Return how many connections the server has now; None if it cannot say."""
        return None
