"""A release with a new schema: a new server upgrades the store while an old one works, and takes over from it."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.postgres import PostgresServer
from tests.service.workflows.pairs import until
from tests.system.ledger_package import write_package
from tests.system.server_process import server_process
from tests.system.test_backup_rehearsal import FLOW

RUNS = 4


def tidemill(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a release to its end."""
    return subprocess.run([sys.executable, "-m", module, *words], check=False, capture_output=True, text=True)


async def call(url: str, path: str, given: Any = None) -> Any:
    """Read from a server, or post to it; the answer must be a success."""
    async with httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=10) as client:
        answer = await (client.get(path) if given is None else client.post(path, json=given))
    assert answer.is_success, answer.text
    return answer.json()


async def push(url: str, numbers: range) -> None:
    """Push numbers to the ledger."""
    for number in numbers:
        await call(url, "/accumulators/entries/events", {"producer": "p", "number": number})


async def until_live(url: str) -> None:
    """Wait until a server answers for the reactor."""

    async def is_live() -> bool:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{url}/api/v1/reactors/ledger")
        return answer.is_success and answer.json()["health"] == "live"

    await until(is_live)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_two_releases_share_a_store_while_one_replaces_the_other(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """S-4: no acknowledged event and no run is lost, and the old server gets no requests of a balancer any longer."""
    store = f"sqlite:///{tmp_path}/tidemill.db"
    if kind == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        store = await postgres.fresh_store()
    packages = tmp_path / "packages"
    packages.mkdir()
    (write_package(packages) / "napping.py").write_text(FLOW)
    options = ("--no-auth", "--packages", str(packages))
    with server_process(store, *options) as old:
        await until_live(old.url)
        await push(old.url, range(1, 6))
        for _ in range(RUNS):
            await call(old.url, "/workflows/nap/runs", {})
        with server_process(store, *options, module="tests.system.next_release") as new:
            await asyncio.to_thread(new.wait_until_ready)
            async with httpx.AsyncClient() as client:
                ready = await client.get(f"{old.url}/health/ready")
            assert ready.status_code == 503
            assert "schema version" in ready.text
            await push(old.url, range(6, 11))
            await push(new.url, range(11, 16))
            await call(old.url, "/workflows/nap/runs", {})
            await call(new.url, "/workflows/nap/runs", {})
            assert await asyncio.to_thread(old.stop) == 0
            await until_live(new.url)
            await push(new.url, range(16, 21))
            account = (await call(new.url, "/reactors/ledger"))["cache"]["entries"]["accounts"]["p"]
            assert (account["count"], account["newest"], account["late"]) == (20, 20, [])

            async def have_ended() -> bool:
                return len((await call(new.url, "/runs?state=success"))["items"]) == RUNS + 2

            await until(have_ended)
    checked = tidemill("tests.system.next_release", "doctor", "--store", store)
    assert checked.returncode == 0, checked.stdout
    refused = tidemill("tidemill", "server", "--store", store, "--no-auth", "--port", "0")
    assert refused.returncode == 2
    assert "run the newer Tidemill that made it" in refused.stderr
