"""Each example does what its docstring says, on a virtual clock and without waiting for what it simulates."""

import asyncio
import importlib.util
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tidemill as tm

EXAMPLES = Path(__file__).parents[3] / "examples"
Load = Callable[[str], ModuleType]
START = datetime(2026, 1, 20, 12, tzinfo=UTC)


async def take(source: AsyncGenerator[tuple[Any, Any]], number: int) -> list[tuple[Any, Any]]:
    """Return the first events of a source with their checkpoints, and close it."""
    async with aclosing(source):
        return [await anext(source) for _ in range(number)]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Imports an example by name; what it simulates with `asyncio.sleep` takes no time."""

    async def no_time(seconds: float) -> None:
        await asyncio.sleep(0)

    def load_example(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=no_time))
        return module

    return load_example


# -- the market maker


async def test_the_market_maker_trades_on_an_edge_within_its_limit(load: Load) -> None:
    """G-15: `Trade | Hold` routes. One share until the risk desk has spoken, then up to its limit."""
    example = load("market_maker")
    async with tm.testing.node(load=[example]) as node:
        reactor = node.reactor("market")

        async def decide(fair: float) -> dict[str, object]:
            await node.push("pricing", {"fair": fair})
            return reactor.firings()[0].results["market_maker"].outputs

        await node.push("orderbook", {"bid": 99.98, "ask": 100.02})
        assert (await decide(100.0))["waiting"] == "no edge"
        outputs = await decide(100.1)
        assert outputs["order"] == example.Trade(1, 100.02)
        assert "waiting" not in outputs
        await node.push("exposure", {"side": 1, "price": 100.02})
        assert (await decide(100.1))["waiting"] == "limit reached"
        assert (await decide(99.9))["order"] == example.Trade(-1, 99.98)
        await node.advance("5s")
        assert reactor.state().cache["limits"]["position"] in (5, 10)
        assert (await decide(100.1))["order"] == example.Trade(1, 100.02)


async def test_the_market_maker_shows_position_profit_and_trend(load: Load) -> None:
    """Fills add up, the position is valued at the market, and the window holds the newest fifty ticks."""
    example = load("market_maker")
    async with tm.testing.node(load=[example]) as node:
        await node.push("pricing", {"fair": 100.0})
        await node.push("exposure", {"side": 1, "price": 100.0})
        for number in range(60):
            await node.push("orderbook", {"bid": 101.0 + number / 100, "ask": 101.2 + number / 100})
        assert (await node.push("orderbook", {"bid": 3.0, "ask": 2.0})).outcome == "suppressed"
        outputs = node.reactor("market").firings()[0].results["market_maker"].outputs
        assert outputs["result"] == example.Result(1, 1.69)
        assert outputs["trend"] == 0.49
        assert len(node.reactor("market").state().cache["ticks"]) == 50


async def test_a_price_that_is_no_number_becomes_a_dead_letter(load: Load) -> None:
    """G-9: it is kept with its reason, and the next price is processed."""
    example = load("market_maker")
    async with tm.testing.node(load=[example]) as node:
        prices = await take(example.Model(example.Market()).start(None), 151)
        outcomes = [(await node.push("pricing", price)).outcome for price, _ in prices]
        assert Counter(outcomes) == {"emitted": 150, "dead_lettered": 1}
        assert outcomes[149] == "dead_lettered"


async def test_the_connection_of_the_model_breaks_and_continues(load: Load) -> None:
    """At its checkpoint, after a minute of health: so it is connected again after a second."""
    example = load("market_maker")
    model = example.Model(example.Market())
    with pytest.raises(ConnectionError):
        await take(model.start(None), 401)
    assert [number for _, number in await take(model.start(400), 3)] == [401, 402, 403]
    assert tm.Settings().success_reset < model.BREAK_EVERY / 10


async def test_the_market_is_the_same_for_the_same_seed(load: Load) -> None:
    """Its books are, one by one; a source that is given a checkpoint goes on from its price."""
    example = load("market_maker")
    first = await take(example.Books(example.Market()).start(None), 20)
    assert await take(example.Books(example.Market()).start(None), 20) == first
    ((book, _),) = await take(example.Books(example.Market()).start(42.0), 1)
    assert abs(book.mid - 42.0) < 0.2


# -- sensors


async def test_an_alert_starts_one_callout_for_each_machine_that_overheats(load: Load) -> None:
    """Behaviour of `tm.on_output`: many hot readings, one run per machine and minute; each run pages and waits."""
    example = load("sensors")
    machines = example.Plant()
    async with tm.testing.node(load=[example], start=START) as node:
        for number in range(4 * machines.EPISODE):
            await node.push("reading", machines.reading(number))
            await node.advance("125ms")
        assert node.metrics()["subscription_suppressed_total"] > 20
        await node.advance("1m")
        results = [await run.wait() for run in reversed(await node.runs("callout"))]
        assert [one.outputs["close"].split()[0] for one in results] == list(example.MACHINES)
        assert [one.state for one in results] == ["success"] * 4
        assert any(one.tasks["confirm"].attempts > 1 for one in results)
        assert all(len(one.tasks["page"].mapped) >= 2 for one in results)
        assert "took care of it" in results[0].outputs["close"]
        assert node.reactor("statistics").state().fires >= 12


async def test_a_callout_waits_without_a_slot(load: Load) -> None:
    """The wait is a deferral, which `why` explains."""
    example = load("sensors")
    async with tm.testing.node(load=[example], start=START) as node:
        run = await node.start("callout", sensor="boiler", celsius=99.0)
        await node.advance("15s")
        assert (await run.state()).tasks["cool_down"].state == "deferred"
        assert (await run.why("cool_down"))[0].startswith("it is deferred until")
        await node.advance("20s")
        result = await run.state()
        assert result.ok
        assert len(result.tasks["page"].mapped) == 3


# -- the nightly report


async def test_the_nightly_report_makes_up_for_seven_days(load: Load) -> None:
    """W-13: oldest first, each with the day of its slot; the unreliable fetch is retried; both branches occur."""
    example = load("nightly_report")
    async with tm.testing.node(load=[example], pools={"warehouse": 1}, start=START) as node:
        await node.advance("2m")
        results = [await run.wait() for run in reversed(await node.runs("nightly_report"))]
        assert [one.outputs["publish"].split()[1] for one in results] == ["14", "15", "16", "17", "18", "19", "20"]
        assert {one.state for one in results} == {"success"}
        assert any(one.tasks["fetch"].attempts > 1 for one in results)
        branches = Counter(one.outputs["publish"].split(" day")[0].rpartition(" ")[2] for one in results)
        assert set(branches) == {"quiet", "busy"}
        assert all(len(one.tasks["clean"].mapped) == 12 for one in results)
        await node.advance("1d")
        assert len(await node.runs("nightly_report")) == 8


async def test_a_report_that_is_not_to_be_published_is_skipped(load: Load) -> None:
    """The params choose: currency, rows, and whether to publish."""
    result = load("nightly_report").nightly.run(day=date(2026, 1, 5), rows=3, currency="USD", luck=1.0, publish=False)
    assert result.tasks["publish"].state == "skipped"
    assert len(result.outputs["clean"]) == 3
    assert result.ok


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"currency": "SEK"}, {"luck": 1.5}])
def test_params_outside_their_bounds_are_refused(load: Load, wrong: dict[str, object]) -> None:
    """The bounds are part of the type, so that a form can show them."""
    with pytest.raises(tm.RequestError) as refused:
        load("nightly_report").nightly.run(day=date(2026, 1, 5), **wrong)
    assert refused.value.code == "invalid_params"


# -- the back office


async def test_the_exchange_rates_fail_now_and_then(load: Load) -> None:
    """Every minute a run; about one in four fails, after one try, with a reason worth reading."""
    example = load("back_office")
    async with tm.testing.node(load=[example.rates], start=START) as node:
        await node.advance("20m")
        results = [await run.wait() for run in await node.runs("exchange_rates")]
        failed = [one for one in results if not one.ok]
        assert len(results) == 20
        assert 2 <= len(failed) <= 8
        assert all(one.tasks["check"].attempts == 1 for one in failed)
        assert "out of range" in failed[0].tasks["check"].error.message


async def test_the_queries_of_the_digest_wait_for_one_another(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-17: one slot for four queries; `why` names the pool."""
    example = load("back_office")
    answered = asyncio.Event()
    monkeypatch.setattr(example, "asyncio", SimpleNamespace(sleep=lambda _: answered.wait()))
    async with tm.testing.node(load=[example], pools={"warehouse": 1}, start=START) as node:
        await node.advance("2m")
        (run,) = await node.runs("digest")
        states = Counter(one.state for one in (await run.state()).tasks["turnover"].mapped)
        assert states == {"running": 1, "scheduled": 3}
        assert any("pool 'warehouse'" in reason for reason in await run.why("turnover[3]"))
        answered.set()
        await node.advance("10s")
        assert (await run.wait()).outputs["send"].startswith("turnover of 4 regions: ")
