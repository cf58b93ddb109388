"""Access services on a store in memory, with a virtual clock."""

from collections.abc import AsyncIterator

import pytest

from tidemill.engine.access.services import AccessServices
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.storage.store import Store


@pytest.fixture
def clock() -> VirtualClock:
    """The clock of the services."""
    return VirtualClock()


@pytest.fixture
async def store(clock: VirtualClock) -> AsyncIterator[Store]:
    """A store in memory."""
    store = MemoryStore(clock.now)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def access(store: Store, clock: VirtualClock) -> AccessServices:
    """The access services of the store."""
    return AccessServices(store, clock, Settings())
