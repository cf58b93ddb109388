"""Fixtures for tests of the running service."""

from pathlib import Path

import pytest

from tests.sqlite import create_database


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """Return the address of a database file that outlives every node of the test; it has no rows."""
    create_database(tmp_path / "tidemill.db")
    return f"sqlite:///{tmp_path}/tidemill.db"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, sqlite: str) -> str:
    """Return the address of an empty store, once of each kind."""
    return "memory://" if request.param == "memory" else sqlite
