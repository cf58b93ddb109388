"""Fixtures for tests of workflows: each on a node without a store, and on one with a file."""

import pytest


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, sqlite: str) -> str | None:
    """Return what a node is given as its store: nothing, or the address of an empty file."""
    return None if request.param == "memory" else sqlite
