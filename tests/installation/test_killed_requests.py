"""Requests with an idempotency key, while servers are killed: one effect, and one answer."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

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


hourly = tm.Workflow("hourly", schedule=tm.Cron("0 * * * *"))


@hourly.task
def also() -> None:
    pass
"""
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 3  # events
MOST_TRANSACTIONS, FEWEST_TRANSACTIONS = 20, 3
"""Of a request with a key: it is begun, has its effect, and its answer is kept; other work adds some."""
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
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
    command = [sys.executable, "-m", "tests.installation.dying_server", "--store", store, "--packages", str(packages)]
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


class KeyedPost(NamedTuple):
    """A request with an idempotency key."""

    path: str
    content: bytes
    headers: dict[str, str]

    async def send(self, http: httpx.AsyncClient) -> httpx.Response:
        """Send it."""
        return await http.post(self.path, content=self.content, headers=self.headers)


def start(number: int) -> KeyedPost:
    """Start a run."""
    return _post("/workflows/flow/runs", number, {"note": str(number)})


def push(number: int) -> KeyedPost:
    """Push an event."""
    return _post("/accumulators/entries/events", number, {"producer": "p", "number": number})


def push_batch(number: int) -> KeyedPost:
    """Push events together."""
    events = [{"producer": "p", "number": BATCH * number + one} for one in range(BATCH)]
    return _post("/accumulators/entries/events", number, *events, content_type="application/x-ndjson")


def backfill(number: int) -> KeyedPost:
    """Start the runs of a day."""
    begin = FIRST_DAY + number * timedelta(days=1)
    slots = {"from": begin.isoformat(), "to": (begin + timedelta(hours=2)).isoformat()}
    return _post("/backfills", number, {"workflow": "hourly", "only_missing": False, **slots})


def create_tenant(number: int) -> KeyedPost:
    """Create a tenant."""
    return _post("/tenants", number, {"name": f"tenant{number:02}"})


def create_account(number: int) -> KeyedPost:
    """Create an account."""
    person = {"name": f"person{number:02}", "role": "read", "password": "correct horse battery"}
    return _post("/accounts", number, person)


def _post(path: str, number: int, *bodies: dict[str, Any], content_type: str = "application/json") -> KeyedPost:
    content = b"\n".join(json.dumps(body).encode() for body in bodies)
    return KeyedPost(path, content, {"idempotency-key": f"key-{number}", "content-type": content_type})


async def post_at_dying(servers: Servers, make: Callable[[int], KeyedPost]) -> int:
    """Make requests at servers that die after more transactions each, until one has answered; return their number."""
    for number in range(MOST_TRANSACTIONS):
        async with servers.started(str(number)) as http:
            try:
                await make(number).send(http)
            except httpx.TransportError:
                continue
            assert number >= FEWEST_TRANSACTIONS
            return number + 1
    raise AssertionError("no server has answered")


async def repeat(http: httpx.AsyncClient, post: KeyedPost) -> Any:
    """Repeat a request whose answer was lost; the repetition is answered at once, and another one in the same way."""
    first, again = await post.send(http), await post.send(http)
    assert first.is_success, first.text
    assert (again.status_code, again.content) == (first.status_code, first.content)
    return first.json()


async def until_loaded(http: httpx.AsyncClient) -> None:
    """Wait until a server has loaded the package, and runs its reactor."""

    async def is_loaded() -> bool:
        found = [(await http.get(path)).is_success for path in ("/workflows/hourly", "/accumulators/entries")]
        return all(found)

    await until(is_loaded)


async def check_runs(http: httpx.AsyncClient, answers: list[Any]) -> None:
    """Each start has made the run of its answer."""
    runs = (await http.get("/runs?workflow=flow&limit=500")).json()
    assert sorted(one["id"] for one in runs["items"]) == sorted(one["id"] for one in answers)


async def check_entries(http: httpx.AsyncClient, answers: list[Any]) -> None:
    """Each event was applied once, under the number of its receipt."""
    receipts = [one for answer in answers for one in answer.get("receipts", [answer])]
    state = (await http.get("/reactors/ledger")).json()
    account = state["cache"]["entries"]["accounts"]["p"]
    assert (account["count"], account["total"]) == (len(receipts), sum(range(len(receipts))))
    assert sorted(one["sequence"] for one in receipts) == list(range(1, len(receipts) + 1))


async def check_backfills(http: httpx.AsyncClient, answers: list[Any]) -> None:
    """Each backfill has made the runs of its answer."""
    backfills = (await http.get("/backfills?limit=500")).json()["items"]
    assert sorted(one["id"] for one in backfills) == sorted(one["id"] for one in answers)
    runs = (await http.get("/runs?workflow=hourly&limit=500")).json()["items"]
    made = [one["id"] for one in runs if one["origin"] == "backfill"]
    assert sorted(made) == sorted(run for one in answers for run in one["runs"])
    assert len(made) == 3 * len(answers)


async def check_tenants(http: httpx.AsyncClient, answers: list[Any]) -> None:
    """Each tenant is the one of its answer, beside that of the instance."""
    tenants = (await http.get("/tenants?limit=500")).json()["items"]
    assert [one for one in tenants if one["name"] != "public"] == answers


async def check_accounts(http: httpx.AsyncClient, answers: list[Any]) -> None:
    """Each account is the one of its answer."""
    assert (await http.get("/accounts?limit=500")).json()["items"] == answers


CASES = {
    "start": (start, check_runs),
    "push": (push, check_entries),
    "batch": (push_batch, check_entries),
    "backfill": (backfill, check_backfills),
    "tenant": (create_tenant, check_tenants),
    "account": (create_account, check_accounts),
}
SLOW_CASES = {("postgresql", name) for name in ("batch", "backfill", "tenant", "account")}
"""`make soak` runs them too: a server starts for each of some thirty transactions."""


def cases() -> list[Any]:
    """Return every kind of request on both databases."""
    is_soak = "TIDEMILL_TEST_SOAK_SECONDS" in os.environ
    return [
        pytest.param(store, *CASES[name], id=f"{store}-{name}")
        for store in ("sqlite", "postgresql")
        for name in CASES
        if is_soak or (store, name) not in SLOW_CASES
    ]


@pytest.mark.parametrize(("store", "make", "check"), cases(), indirect=["store"])
async def test_a_request_has_one_effect_and_one_answer_whenever_its_server_dies(
    store: str,
    packages: Path,
    make: Callable[[int], KeyedPost],
    check: Callable[[httpx.AsyncClient, list[Any]], Awaitable[None]],
) -> None:
    """http.md, G-24: a server that dies leaves no key behind that is blocked, and no effect without its key."""
    async with servers_on(store, packages) as servers:
        number = await post_at_dying(servers, make)
        async with servers.started() as http:
            await check(http, [await repeat(http, make(one)) for one in range(number)])
