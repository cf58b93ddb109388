"""Requests with an idempotency key, while servers are killed: one effect, and one answer."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.postgres import PostgresServer
from tests.service.workflows.pairs import until
from tests.system.ledger_package import write_package
from tidemill.client.connection import tls_context

FLOW = """
import tidemill as tm

flow = tm.Workflow("flow")


@flow.task
def only() -> None:
    pass
"""
START, PUSH = "/workflows/flow/runs", "/accumulators/entries/events"
MOST_TRANSACTIONS, FEWEST_TRANSACTIONS = 20, 5
"""Of two requests with a key: each is begun, has its effect, and its answer is kept; other work adds some."""
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return await postgres.fresh_store()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with a workflow, and a reactor that keeps a ledger."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "flow.py").write_text(FLOW)
    return write_package(folder)


class Servers:
    """Servers on one store, one after another; each but the last kills itself."""

    def __init__(self, mother: Process) -> None:
        self._mother = mother

    @asynccontextmanager
    async def started(self, death: str = "none") -> AsyncIterator[httpx.AsyncClient]:
        """Run a server until it dies, at the latest at the end of the block."""
        assert self._mother.stdin is not None
        self._mother.stdin.write(f"{death}\n".encode())
        lines = sorted([await self._line(), await self._line()])  # mother and child write at the same time
        pid, url = int(lines[0]), json.loads(lines[1])["url"]
        async with httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=20, verify=tls_context()) as http:
            await until_loaded(http)
            yield http
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert await self._line() == "dead"

    async def _line(self) -> str:
        assert self._mother.stdout is not None
        return (await self._mother.stdout.readline()).decode().strip()


@asynccontextmanager
async def servers_on(store: str, packages: Path) -> AsyncIterator[Servers]:
    """Prepare servers on a store."""
    command = [sys.executable, "-m", "tests.system.dying_server", "--store", store, "--packages", str(packages)]
    mother = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
    try:
        yield Servers(mother)
        assert mother.stdin is not None
        mother.stdin.close()
        assert await mother.wait() == 0
    finally:
        if mother.returncode is None:
            os.killpg(mother.pid, signal.SIGKILL)  # with its server
            await mother.wait()


async def post_at_dying(servers: Servers) -> int:
    """Make requests at servers that die after more transactions each, until one has answered; return their number."""
    for number in range(MOST_TRANSACTIONS):
        async with servers.started(str(number)) as http:
            try:
                for path, body in requests_of(number).items():
                    await http.post(path, json=body, headers={"Idempotency-Key": f"{number}{path}"})
            except httpx.TransportError:
                continue
            assert number > FEWEST_TRANSACTIONS
            return number + 1
    raise AssertionError("no server has answered")


def requests_of(number: int) -> dict[str, Any]:
    """Return the requests of a server, by path: the start of a run, and the push of an event."""
    return {START: {"note": str(number)}, PUSH: {"producer": "p", "number": number}}


async def repeat(http: httpx.AsyncClient, path: str, number: int) -> Any:
    """Repeat a request whose answer was lost; the repetition is answered at once, and another one in the same way."""
    body, key = requests_of(number)[path], {"Idempotency-Key": f"{number}{path}"}
    first = await http.post(path, json=body, headers=key)
    again = await http.post(path, json=body, headers=key)
    assert first.is_success, first.text
    assert (again.status_code, again.content) == (first.status_code, first.content)
    return first.json()


async def until_loaded(http: httpx.AsyncClient) -> None:
    """Wait until a server has loaded the package, and runs its reactor."""

    async def is_loaded() -> bool:
        found = [(await http.get(path)).is_success for path in ("/workflows/flow", "/accumulators/entries")]
        return all(found)

    await until(is_loaded)


async def test_a_request_has_one_effect_and_one_answer_whenever_its_server_dies(store: str, packages: Path) -> None:
    """http.md, G-24: a server that dies leaves no key behind that is blocked, and no effect without its key."""
    async with servers_on(store, packages) as servers:
        number = await post_at_dying(servers)
        async with servers.started() as http:
            started = [await repeat(http, START, one) for one in range(number)]
            pushed = [await repeat(http, PUSH, one) for one in range(number)]
            runs = (await http.get("/runs")).json()
            state = (await http.get("/reactors/ledger")).json()
    assert runs["total"] == number
    assert {one["id"] for one in runs["items"]} == {one["id"] for one in started}
    account = state["cache"]["entries"]["accounts"]["p"]
    assert (account["count"], account["total"]) == (number, sum(range(number)))
    assert sorted(one["sequence"] for one in pushed) == list(range(1, number + 1))
