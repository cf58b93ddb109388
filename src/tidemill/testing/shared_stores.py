"""The stores that test nodes of one process share, and the nodes that share them.

A test node has its store to itself until another one opens the same store. Then both behave as nodes of a cluster do:
their leases are short, and they tick and claim. Until then a test of three hours needs no ticks for the sake of others.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary, WeakValueDictionary

from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.storage.sqlite.memory import MemoryDatabase

MEMORY_SCHEME = "memory://"

# Process-wide, as a database is: two nodes that know nothing of each other name the same store.
_databases_by_address: WeakValueDictionary[str, MemoryDatabase] = WeakValueDictionary()
_engines_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, list[WorkflowEngine]]] = WeakKeyDictionary()


def memory_database(address: str) -> MemoryDatabase:
    """Return the database of a memory store: for "memory://" a new one, for "memory://name" the one with this name."""
    if address == MEMORY_SCHEME:
        return MemoryDatabase()
    return _databases_by_address.setdefault(address, MemoryDatabase())


@contextmanager
def using_store(address: str, engine: WorkflowEngine) -> Iterator[list[WorkflowEngine]]:
    """Register an engine as a user of a store; yield those that use it on this event loop, and have not crashed."""
    users = _engines_by_loop.setdefault(asyncio.get_running_loop(), {}).setdefault(address, [])
    others = [other for other in users if not other.runtime.tasks.is_closed]
    users.append(engine)
    try:
        yield others
    finally:
        users.remove(engine)
        if not users:
            _databases_by_address.pop(address, None)  # the next test that uses the name begins with an empty store
