"""Runs through the client: start, wait, follow, cancel, retry and list."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import TypeVar

import pytest

import tidemill as tm
from tests.service.client.cutting_proxy import cutting_proxy
from tests.service.server.serving_node import Served, served
from tests.service.server.workflow_samples import make_report
from tidemill.client import AsyncClient, Client

Result = TypeVar("Result")


def make_patient(opened: asyncio.Event) -> tm.Workflow:
    """Return a workflow that waits until a test lets it go on."""
    patient = tm.Workflow("patient")

    @patient.task
    async def wait_for_it(ctx: tm.Context) -> str:
        ctx.log.info("waiting", number=1)
        await opened.wait()
        ctx.log.info("going on", number=2)
        return "done"

    return patient


class Opened(asyncio.Event):
    """Lets the patient workflow go on."""


@pytest.fixture
def opened() -> Opened:
    """Not set."""
    return Opened()


@pytest.fixture
async def server(opened: Opened) -> AsyncIterator[Served]:
    """A served node with a report, and a workflow that waits."""
    async with tm.Node(load=[make_report(), make_patient(opened)]) as node, served(node) as one:
        yield one
        opened.set()


@pytest.fixture
async def client(server: Served) -> AsyncIterator[AsyncClient]:
    """A client of the server."""
    async with AsyncClient(server.url, retry=tm.Retry(3, delay="1ms")) as one:
        yield one


async def blocking(server: Served, work: Callable[[Client], Result]) -> Result:
    """Do something with the blocking client, in a thread."""

    def do() -> Result:
        with Client(server.url) as client:
            return work(client)

    return await asyncio.to_thread(do)


async def test_a_run_is_started_and_waited_for(client: AsyncClient) -> None:
    """http.md: `start` takes keywords or a mapping, `wait` returns a tm.RunResult with the outputs."""
    result = await (await client.start("report", day=date(2026, 1, 5), rows=2)).wait(timeout="20s")
    assert isinstance(result, tm.RunResult)
    assert (result.ok, result.outputs) == (True, {"fetch": [0, 1], "clean": [0, 2], "load": {"sum": 2}})
    assert [one.output for one in result.tasks["clean"].mapped] == [0, 2]
    run = await client.start("report", {"day": "2026-01-06"})
    assert (await run.result()).workflow == "report"
    assert (await run.info()).params == {"day": "2026-01-06", "rows": 3}


async def test_the_blocking_client_does_the_same(server: Served) -> None:
    """http.md: the example of the page."""

    def work(client: Client) -> tm.RunResult:
        run = client.start("report", day="2026-01-05")
        return run.wait(timeout="5m")

    assert (await blocking(server, work)).outputs["load"] == {"sum": 6}


async def test_a_run_that_failed_raises_only_where_it_is_asked_to(client: AsyncClient) -> None:
    """`wait` returns what happened; `result` raises it."""
    run = await client.start("report", day="2026-01-05", rows=-1)
    result = await run.wait()
    error = result.tasks["load"].error
    assert error is not None
    assert (result.state, error.type, error.message) == (tm.RunState.FAILED, "ValueError", "negative rows")
    with pytest.raises(tm.OperationError, match="negative rows"):
        await run.result()


@pytest.mark.parametrize("timeout", ["0s", "60ms"])
async def test_a_timeout_ends_the_wait_and_not_the_run(
    server: Served, client: AsyncClient, opened: Opened, timeout: str
) -> None:
    """api.md: TimeoutError harms nothing."""
    run = await client.start("patient")
    with pytest.raises(TimeoutError, match="it continues"):
        await run.wait(timeout=timeout)

    def work(client: Client) -> None:
        client.run_handle(run.id).wait(timeout=timeout)

    with pytest.raises(TimeoutError):
        await blocking(server, work)
    opened.set()
    assert (await run.wait()).ok


async def test_a_wait_outlives_lost_connections(server: Served, opened: Opened) -> None:
    """The client follows the events of the run again, and asks for its state."""
    async with cutting_proxy(server.url) as proxy, AsyncClient(proxy.url, retry=tm.Retry(5, delay="1ms")) as client:
        run = await client.start("patient")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(run.wait(timeout="20s"))
            events = run.events(follow=True)
            assert (await anext(events)).after
            proxy.cut()
            opened.set()
            rest = [event async for event in events]
        assert waiting.result().ok
        numbers = [event.number for event in rest]
        assert numbers == list(range(2, len(numbers) + 2))
        assert rest[-1].after == "success"


async def test_a_start_whose_answer_is_lost_is_repeated_with_its_key(server: Served) -> None:
    """http.md: starts are retried with the same idempotency key, so that there is one run."""
    async with cutting_proxy(server.url) as proxy, AsyncClient(proxy.url, retry=tm.Retry(3, delay="1ms")) as client:
        await client.me()
        proxy.lost_answers = 1
        run = await client.start("report", day="2026-01-05")
        assert (await run.wait()).ok
        assert [one.id for one in await client.runs()] == [run.id]


async def test_runs_are_listed_over_all_pages(client: AsyncClient) -> None:
    """http.md: newest first, by workflow, state and text."""
    ids = [(await client.start("report", day=f"2026-01-0{day}")).id for day in range(1, 6)]
    assert [one.id for one in await client.runs(limit=3)] == ids[:1:-1]
    assert [one.id for one in await client.runs("report", limit=None)] == ids[::-1]
    for run in ids:
        await client.run_handle(run).wait()
    assert len(await client.runs(state=["success", tm.RunState.FAILED])) == 5
    assert await client.runs(state="failed") == []
    assert [one.id for one in await client.runs(text="2026-01-03")] == [ids[2]]


async def test_a_run_is_cancelled_retried_and_noted(client: AsyncClient, opened: Opened) -> None:
    """http.md: the commands on a run."""
    run = await client.start("patient")
    await run.cancel("not needed")
    result = await run.wait()
    assert (result.state, result.reason) == (tm.RunState.CANCELLED, "not needed")
    opened.set()
    assert (await run.retry(preview=True)).reruns == ["wait_for_it"]
    await run.retry()
    assert (await run.wait()).ok
    await run.note("done by hand")
    assert (await run.info()).note == "done by hand"
    with pytest.raises(tm.RequestError) as refused:
        await run.cancel()
    assert (refused.value.code, refused.value.status) == ("run_ended", 409)


async def test_errors_name_what_is_wrong(client: AsyncClient) -> None:
    """http.md: unknown names come with suggestions, wrong params with their path."""
    with pytest.raises(tm.RequestError) as unknown:
        await client.start("reprt", day="2026-01-05")
    assert (unknown.value.code, unknown.value.facts["suggestions"]) == ("workflow_not_found", ["report"])
    with pytest.raises(tm.RequestError) as wrong:
        await client.start("report", day="2026-01-05", rows="many")
    assert wrong.value.code == "invalid_params"
    assert wrong.value.facts["errors"][0].path == "params.rows"
    with pytest.raises(tm.RequestError) as unsendable:
        await client.start("report", day=object())
    assert unsendable.value.code == "not_serializable"
    with pytest.raises(tm.RequestError) as missing:
        await client.run_handle("nothing").wait()
    assert missing.value.code == "run_not_found"
