"""The port through which code carries operations out, in this process or at a server."""

from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any, Protocol, TypeVar

from tidemill.api.operation import ListOperation, Operation
from tidemill.graphs.state import ReactorState
from tidemill.kernel.durations import Duration
from tidemill.workflows.result import RunResult

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class AsyncApi(Protocol):
    """Carries operations out, in this process or at a server."""

    async def call(self, operation: Operation[..., Answer], fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a request with these fields."""

    async def collect(
        self, operation: ListOperation[..., Item], fields: Mapping[str, Any], limit: int | None
    ) -> list[Item]:
        """Return the items of a list, `limit` at most."""

    def stream(self, operation: ListOperation[..., Item], fields: Mapping[str, Any]) -> AsyncGenerator[Item, None]:
        """Yield the items of a list as they come, until it has ended."""

    async def result(self, run: str, *, outputs: bool = True) -> RunResult:
        """Return the state of a run; where its code is loaded, its outputs have the types of the workflow."""

    async def wait(self, run: str, timeout: Duration | None = None) -> RunResult:
        """Return the result of a run when it has ended; TimeoutError after the timeout."""

    def watch_reactor(self, name: str, every: Duration) -> AsyncGenerator[ReactorState, None]:
        """Yield the state of a reactor whenever it has changed, at most so often."""


class Api(Protocol):
    """The same for code that blocks."""

    def call(self, operation: Operation[..., Answer], fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a request with these fields."""

    def collect(self, operation: ListOperation[..., Item], fields: Mapping[str, Any], limit: int | None) -> list[Item]:
        """Return the items of a list, `limit` at most."""

    def stream(self, operation: ListOperation[..., Item], fields: Mapping[str, Any]) -> Generator[Item, None, None]:
        """Yield the items of a list as they come, until it has ended."""

    def result(self, run: str, *, outputs: bool = True) -> RunResult:
        """Return the state of a run."""

    def wait(self, run: str, timeout: Duration | None = None) -> RunResult:
        """Return the result of a run when it has ended; TimeoutError after the timeout."""

    def watch_reactor(self, name: str, every: Duration) -> Generator[ReactorState, None, None]:
        """Yield the state of a reactor whenever it has changed, at most so often."""
