"""An installation under kills, freezes, restarts of its database, swaps of its packages, joins and leaves.

Clients at random servers keep a journal. In the end, the audit compares it with the store and with what the code of the
packages has noted. A short form runs with `make installation`; `TIDEMILL_TEST_SOAK_SECONDS` makes it as long as wanted,
and `SEED` repeats the faults of another run.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installation.processes import installed
from tests.installation.trial import Trial
from tests.postgres import PostgresServer

SECONDS = {"postgres": 45.0, "sqlite": 30.0}
"""Seconds of faults, in the short form."""
SOAK_SECONDS = float(os.environ.get("TIDEMILL_TEST_SOAK_SECONDS", "0"))

pytestmark = pytest.mark.timeout(SOAK_SECONDS + 600)


async def nothing_is_found(
    store: str, folder: Path, seconds: float, *, servers: int, workers: int, postgres: PostgresServer | None = None
) -> None:
    """Run a trial, and require that its audit finds nothing."""
    seed = find_seed()
    print(f"SEED={seed}, {folder}")
    key = make_key(store)
    async with installed(store, folder, servers=servers, workers=workers) as installation:
        findings = await Trial(installation, folder, key, postgres).run(seed, SOAK_SECONDS or seconds)
    assert not findings, "\n".join([f"SEED={seed}: {len(findings)} findings, files in {folder}", *findings])


def find_seed() -> int:
    """Return the seed of the faults: that of SEED, a random one in a soak, and otherwise a fixed one."""
    if given := int(os.environ.get("SEED", "0")):
        return given
    return random.SystemRandom().randrange(1, 2**32) if SOAK_SECONDS else 1


def make_key(store: str) -> str:
    """Make the first key, as an operator does."""
    command = [sys.executable, "-m", "tidemill", "key", "create", "--role", "admin", "--store", store, "-o", "json"]
    made: dict[str, str] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return made["key"]


async def test_nothing_acknowledged_is_lost_or_done_twice_on_postgres(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """G-24, G-31, W-11, W-12: three servers, one that joins and leaves, and two workers."""
    store = await own_postgres.fresh_store()
    await nothing_is_found(store, tmp_path, SECONDS["postgres"], servers=3, workers=2, postgres=own_postgres)


async def test_nothing_acknowledged_is_lost_or_done_twice_on_sqlite(tmp_path: Path) -> None:
    """G-24, G-31, W-11, W-12: two servers, one that joins and leaves, and a worker."""
    store = f"sqlite:///{tmp_path / 'tidemill.db'}"
    await nothing_is_found(store, tmp_path, SECONDS["sqlite"], servers=2, workers=1)
