"""Input of people and their code that no store or calendar can hold: refused alike on every store."""

from datetime import UTC, datetime
from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.workflows.acting import states

HALF = "half \ud800, none \0"
WHOLE = "half \\ud800, none \N{SYMBOL FOR NULL}"


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def everywhere(request: pytest.FixtureRequest, sqlite: str) -> str | None:
    """Return the address of an empty store of each kind."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return await server.fresh_database()
    return None if request.param == "memory" else sqlite


def waiting(until: datetime) -> tm.Workflow:
    """Return a workflow that waits for a moment."""
    flow = tm.Workflow("waiting")

    @flow.task
    def work(ctx: tm.Context) -> None:
        ctx.defer(until=until)

    return flow


async def test_notes_and_reasons_are_kept_as_every_store_can(everywhere: str | None) -> None:
    """api.md, Errors: nothing raw, and the same wherever it is kept."""
    async with tm.testing.node(everywhere, load=[waiting(datetime(2099, 1, 1, tzinfo=UTC))]) as node:
        run = await node.start("waiting")
        await node.settle()
        await run.note(HALF)
        await run.note(HALF, "work")
        await run.cancel(HALF)
        result = await run.state()
        assert await run.notes() == {None: WHOLE, "work": WHOLE}
        assert (str(result.state), result.reason, result.tasks["work"].reason) == ("cancelled", WHOLE, WHOLE)


async def test_the_names_of_params_are_refused_if_no_store_can_keep_them(everywhere: str | None) -> None:
    """api.md, Errors: a RequestError, and the values too."""
    async with tm.testing.node(everywhere, load=[waiting(datetime(2099, 1, 1, tzinfo=UTC))]) as node:
        for params in ({HALF: 1}, {"word": "half \ud800"}, {3: "x"}):
            with pytest.raises(tm.RequestError, match="invalid params") as caught:
                await node.start("waiting", params)
            assert caught.value.code == "invalid_params"
        assert await node.runs() == []


@pytest.mark.parametrize("until", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
async def test_the_ends_of_the_calendar_can_be_waited_for(everywhere: str | None, until: datetime) -> None:
    """W-5: accepted values can be stored, and other runs continue."""
    other = tm.Workflow("other")

    @other.task
    def work() -> int:
        return 1

    async with tm.testing.node(everywhere, load=[waiting(until), other], concurrency=1) as node:
        run = await node.start("waiting")
        await node.advance("2s")
        assert states(await run.state()) == {"work": "deferred" if until.year > 1 else "success"}
        beside = await node.start("other")
        await node.settle()
        assert (await beside.state()).ok


@pytest.mark.parametrize("wrong", [{"for_": float("inf")}, {"for_": "10000000d"}, {"poll": bool, "every": 10**30}])
@pytest.mark.parametrize("kind", ["thread", "loop"])
async def test_a_wait_without_an_end_fails_at_once(store: str | None, wrong: dict[str, Any], kind: str) -> None:
    """W-5: with a text that says why, and the only place is free for the next run."""
    flow = tm.Workflow("endless")

    if kind == "thread":

        @flow.task
        def work(ctx: tm.Context) -> int:
            if ctx["waits"]:
                ctx.defer(**wrong)
            return 1
    else:

        @flow.task
        async def work(ctx: tm.Context) -> int:  # type: ignore[misc]
            if ctx["waits"]:
                ctx.defer(**wrong)
            return 1

    async with tm.testing.node(store, load=[flow], concurrency=1) as node:
        run, beside = await node.start("endless", waits=True), await node.start("endless", waits=False)
        await node.settle()
        failed = (await run.state()).tasks["work"]
        assert str(failed.state) == "failed"
        assert "it is finite, and at most a hundred years, '36500d'" in str(failed.error)
        assert (await beside.state()).ok


async def test_largest_numbers_can_be_kept(everywhere: str | None) -> None:
    """W-5: everything that may be declared may be stored."""
    flow = tm.Workflow("x" * 200, max_active_runs=2**31 - 1, tags=["y" * 200])

    @flow.task(priority=2**31 - 1, retry=2**31 - 2, timeout="36500d", pool="z" * 200)
    def highest() -> int:
        return 1

    @flow.task(priority=-(2**31) + 1, queue="q" * 200)
    def lowest(highest: int) -> int:
        return highest

    settings = {"retention": "36500d", "run_orphan_after": "36500d", "reap_limit": 2**31 - 1}
    async with tm.testing.node(everywhere, load=[flow], settings=settings, pools={"z" * 200: 2**31 - 1}) as node:
        run = await node.start(flow)
        await node.advance("3h")
        assert (await run.state()).ok
        assert [one.id for one in await node.runs(limit=10**30)] == [run.id]
        assert node.metrics()["scheduler_phase_errors_total"] == 0


async def test_a_schedule_may_begin_long_ago(store: str | None) -> None:
    """api.md, catchup="all": the newest `limit`, however many there were since 1900."""
    long_ago = datetime(1900, 1, 1, tzinfo=UTC)
    flow = tm.Workflow("old", schedule=tm.Every("1s", start=long_ago, catchup="all", limit=3))

    @flow.task
    def work(ctx: tm.Context) -> str:
        return str(ctx.slot)

    async with tm.testing.node(store, load=[flow]) as node:
        await node.settle()
        assert len(await node.runs()) == 3
        assert node.metrics()["schedule_errors_total"] == 0
