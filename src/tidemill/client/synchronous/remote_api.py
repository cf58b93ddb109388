# Written by scripts/blocking_client.py from client/asynchronous: change it there.
"""Carries operations out at a server."""

from collections.abc import Mapping
from typing import Any, TypeVar

from tidemill.api.operation import ListOperation, Operation
from tidemill.client.calls import to_call
from tidemill.client.synchronous.transport import Transport

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class RemoteApi:
    """Sends the requests of operations to a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def call(self, operation: Operation[..., Answer], fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a request with these fields."""
        return self._transport.send(to_call(operation, fields))

    def collect(self, operation: ListOperation[..., Item], fields: Mapping[str, Any], limit: int | None) -> list[Item]:
        """Return the items of a list, `limit` at most."""
        call = to_call(operation, fields)
        if not operation.takes_page:
            return (self._transport.send(call)).items[:limit]
        return self._transport.collect(call, limit)
