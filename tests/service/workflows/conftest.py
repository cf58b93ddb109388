"""Fixtures for tests of workflows: each on a node without a store, and on one with a file."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

import tidemill as tm
from tests.service.workflows.pairs import SETTINGS, Pair


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, sqlite: str) -> str | None:
    """Return the store of a node: None, or the address of an empty file."""
    return None if request.param == "memory" else sqlite


@pytest.fixture
async def make_pair(sqlite: str) -> AsyncIterator[Callable[..., Awaitable[Pair]]]:
    """Make a leader with one slot, and a follower with some."""
    async with AsyncExitStack() as stack:

        async def make(flow: tm.Workflow, places: int = 1) -> Pair:
            leader = tm.Node(sqlite, load=[flow], concurrency=1, settings=SETTINGS)
            follower = tm.Node(sqlite, load=[flow], concurrency=places, settings=SETTINGS)
            return await stack.enter_async_context(leader), await stack.enter_async_context(follower)

        yield make
