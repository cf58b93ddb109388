"""Fixtures of remote attempts: a cluster of local processes, a store, and a served node."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.remote.local_launcher import LocalLauncher
from tests.remote.remote_node import RemoteServer, remote_node


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[LocalLauncher]:
    """A cluster of this machine."""
    launcher = LocalLauncher(tmp_path / "units")
    yield launcher
    launcher.end()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The address of a store that several nodes may use."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
async def server(store: str, launcher: LocalLauncher) -> AsyncIterator[RemoteServer]:
    """A served node."""
    async with remote_node(store, launcher) as server:
        yield server
