"""The node's side of the gateway to Ray, with a gateway that reaches no cluster."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidemill.engine.ray import gateway_client
from tidemill.engine.ray.gateway_client import ActorObserver, RayGateway
from tidemill.engine.ray.protocol import ProcessStatus
from tidemill.kernel.clock import VirtualClock

ROOT = Path(__file__).parents[3]


class _Stumbling(ActorObserver):
    """Fails at the first connection."""

    def __init__(self) -> None:
        self.connections = 0
        self.reconnected = asyncio.Event()

    def on_connected(self, session: str) -> None:
        self.connections += 1
        if self.connections == 1:
            raise KeyError(session)
        self.reconnected.set()

    def on_listed(self, names: Sequence[str]) -> None:
        raise NotImplementedError

    def on_status(self, name: str, status: ProcessStatus) -> None:
        raise NotImplementedError


async def test_an_unexpected_error_costs_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W-11: without its gateway, a node would judge no unit any more. The error is logged with its traceback."""
    monkeypatch.setattr(gateway_client, "GATEWAY_MODULE", "tests.unit.workflows.announcing_gateway")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    clock, observer = VirtualClock(), _Stumbling()
    gateway = RayGateway("127.0.0.1:1", "tidemill", clock, observer)
    await gateway.open("a/")
    try:
        async with asyncio.timeout(30.0):
            while not observer.reconnected.is_set():
                await asyncio.sleep(0.01)
                clock.advance_to(clock.monotonic() + 0.1)
        assert gateway.is_connected
    finally:
        await gateway.close()
    assert any(record.exc_info for record in caplog.records)
