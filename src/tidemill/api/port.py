"""The port through which code carries operations out, in this process or at a server."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from tidemill.api.operation import ListOperation, Operation

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


class Api(Protocol):
    """The same for code that blocks."""

    def call(self, operation: Operation[..., Answer], fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a request with these fields."""

    def collect(self, operation: ListOperation[..., Item], fields: Mapping[str, Any], limit: int | None) -> list[Item]:
        """Return the items of a list, `limit` at most."""
