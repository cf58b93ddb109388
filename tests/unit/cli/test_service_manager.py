"""Reports to a service manager, by the protocol of sd_notify."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.cli.service_manager import READY, feeding_watchdog, report_state
from tidemill.kernel.errors import OperationError


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a service manager: a path, or an abstract name, which is written with an @."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address.replace("@", "\0", 1))
        listener.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield listener


def test_a_state_is_one_datagram(manager: socket.socket) -> None:
    """S-Ops: systemd learns that the server is ready."""
    report_state(READY)
    assert manager.recv(100) == b"READY=1"


def test_without_a_service_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in a shell has none."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    report_state(READY)


def test_a_service_manager_that_does_not_listen_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stop the service later, and not say why."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nothing"))
    with pytest.raises(OperationError, match=r"does not listen on .*nothing, its NOTIFY_SOCKET"):
        report_state(READY)


async def test_the_watchdog_is_fed_until_the_end(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice per interval, here 40 ms."""
    monkeypatch.setenv("WATCHDOG_USEC", "40000")
    with feeding_watchdog():
        for _ in range(3):
            assert await asyncio.to_thread(manager.recv, 100) == b"WATCHDOG=1"
    loop = asyncio.get_running_loop()
    assert not [one for one in loop._scheduled if not one.cancelled()]  # type: ignore[attr-defined]


async def test_a_service_manager_that_does_not_read_does_not_block_the_loop(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue of unread reports is full, and requests are answered nevertheless."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(BlockingIOError):
        sender.connect(manager.getsockname())
        sender.setblocking(False)
        while True:
            sender.send(b"WATCHDOG=1")
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    begun = time.monotonic()
    with feeding_watchdog():
        await asyncio.sleep(0)  # the first report is due in this turn of the loop
    assert time.monotonic() - begun < 10


async def test_the_watchdog_is_fed_again_after_the_service_manager_has_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-Ops: its socket disappears for a while, and it must not take the server for dead."""
    address = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(address))
    monkeypatch.setenv("WATCHDOG_USEC", "40000")
    with feeding_watchdog():
        await asyncio.sleep(0)  # the first report is due in this turn of the loop, and has no receiver
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(address))
            listener.settimeout(20)
            assert await asyncio.to_thread(listener.recv, 100) == b"WATCHDOG=1"


async def test_a_service_manager_without_a_watchdog_gets_no_reports(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval is in the environment only if the unit has one."""
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    with feeding_watchdog():
        await asyncio.sleep(0)
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)
