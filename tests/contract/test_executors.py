"""What every executor promises: each attempt at most once, and how it ended said exactly once."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.contract.executor_bench import Bench, bench_of, until
from tests.contract.executor_flows import Row, Small, hidden
from tidemill.engine.workflows.executors.attempt_output import (
    HEAD_LIMIT,
    LOG_LINE_LIMIT,
    MESSAGE_LIMIT,
    TAIL_LIMIT,
    TRACEBACK_LIMIT,
)
from tidemill.engine.workflows.executors.interface import ItemOfList, ListInput, SingleInput
from tidemill.kernel.errors import OperationError
from tidemill.workflows.attempt_results import Cancelled, Deferred, Failed, HandedBack, Skipped, Succeeded

EXECUTORS = ["in_process", "subprocess"]

encode = msgspec.msgpack.encode


@pytest.fixture(params=EXECUTORS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Each executor, open."""
    async with bench_of(request.param, tmp_path) as bench:
        yield bench


# -- once


async def test_an_attempt_that_is_submitted_again_runs_once(bench: Bench) -> None:
    """Executors: idempotent by attempt id, while it runs and after."""
    order = await bench.start("blocks")
    await bench.executor.submit(order)
    bench.let_go()
    await bench.ledger.ending(order.key)
    await bench.executor.submit(order)
    assert await bench.value("noop") is None
    assert [key for key, _ in bench.ledger.endings].count(order.key) == 1
    assert bench.ledger.begun.count(order.key) == 1


async def test_what_may_not_begin_never_runs(bench: Bench) -> None:
    """W-2: running begins with the handshake; who is refused says nothing more."""
    bench.ledger.refuses = True
    order = bench.order("blocks", workflow="loose", params=bench.files())
    await bench.executor.submit(order)
    await until(lambda: not bench.executor.running())
    assert not Path(bench.files()["begun"]).exists()
    assert bench.ledger.endings == []


async def test_what_cannot_be_recorded_to_begin_is_handed_back(bench: Bench) -> None:
    """W-2: nothing runs that the store knows nothing of."""
    bench.ledger.fails = True
    ending = await bench.run("noop")
    assert isinstance(ending, HandedBack)
    assert "the store is away" in ending.reason


async def test_what_has_begun_is_not_asked_again(bench: Bench) -> None:
    """W-2: the claim of an immediate executor may be the begin as well."""
    assert await bench.value("total", inputs={"double": ListInput((encode(Row(1)),))}, has_begun=True) == 1
    assert bench.ledger.begun == []


async def test_code_that_is_not_here_is_refused(bench: Bench) -> None:
    """W-19: nothing is begun."""
    with pytest.raises(OperationError, match="not loaded"):
        await bench.executor.submit(bench.order("one", workflow="unknown"))
    assert bench.executor.running() == set()
    assert bench.ledger.begun == []


# -- what goes in


async def test_params_and_what_is_known_of_the_attempt_reach_the_code(bench: Bench) -> None:
    """API: ctx.run_id, ctx.attempt, ctx.token, ctx.slot."""
    slot = datetime(2026, 3, 1, tzinfo=UTC)
    order = bench.order("day", number=2, slot=slot)
    await bench.executor.submit(order)
    ending = await bench.ledger.ending(order.key)
    assert isinstance(ending, Succeeded)
    run = order.key.run
    assert msgspec.msgpack.decode(ending.value) == ["monday", 7, 2, run, f"{run}/day#2", slot.isoformat()]


async def test_without_a_class_params_are_read_by_key(bench: Bench) -> None:
    """API: a workflow without `params=` takes any keywords."""
    assert await bench.value("anything", workflow="loose", params={"who": "me", "count": 2}) == "me and 2"


async def test_the_context_merges_params_and_dicts(bench: Bench) -> None:
    """API: run params, then keys of dict results; the last wins, and a wrong key says what was meant."""
    assert await bench.value("merged", inputs={"facts": SingleInput(encode({"limit": 1}))}) == ["monday", 1]
    assert await bench.value("merged") == ["monday", 7]
    failure = await bench.failure("unknown_key")
    assert failure.error.type == "KeyError"
    assert "did you mean 'limit'?" in failure.error.message


async def test_a_list_is_taken_apart_and_put_together(bench: Bench) -> None:
    """API: each=."""
    rows = encode([Row(1), Row(2), Row(3)])
    assert await bench.value("double", inputs={"rows": ItemOfList(rows, 1)}, element=1) == Row(4)
    assert await bench.value("double", inputs={"rows": ItemOfList(rows, 2)}, element=2) == Row(6)
    doubled = (encode(Row(2)), encode(Row(4)))
    assert await bench.value("total", inputs={"double": ListInput(doubled)}) == 6


async def test_an_input_that_is_missing_is_none_or_the_default(bench: Bench) -> None:
    """API: rules may run a task without a value."""
    assert await bench.value("fallback") == [None, 5]
    assert await bench.value("fallback", inputs={"total": SingleInput(encode(1))}) == [None, 1]


async def test_a_value_belongs_to_the_task_that_gets_it(bench: Bench) -> None:
    """Two tasks never share a value that can be changed."""
    value = encode({"limit": 1})
    for _ in range(2):
        assert await bench.value("change", inputs={"facts": SingleInput(value)}) == {"limit": 1, "changed": 1}


async def test_an_input_that_cannot_be_read_fails_for_good(bench: Bench) -> None:
    failure = await bench.failure("small", inputs={"choose": SingleInput(b"\xc1")})
    assert not failure.may_retry
    assert "the value of task 'choose' cannot be read" in failure.error.message


# -- what comes out


@pytest.mark.parametrize(("total", "variant"), [(3, "Small"), (30, "Large"), (0, "None")])
async def test_a_value_is_named_by_its_variant(bench: Bench, total: int, variant: str) -> None:
    """API: a union return type routes; the words are those of the edges."""
    ending = await bench.run("choose", inputs={"total": SingleInput(encode(total))})
    assert isinstance(ending, Succeeded)
    assert ending.variant == variant


async def test_what_a_route_carries_can_be_read_again(bench: Bench) -> None:
    ending = await bench.run("choose", inputs={"total": SingleInput(encode(3))})
    assert isinstance(ending, Succeeded)
    assert await bench.value("choose", inputs={"total": SingleInput(encode(3))}) == Small(3)
    assert await bench.value("small", inputs={"choose": SingleInput(ending.value)}) == 3


async def test_a_list_has_a_size(bench: Bench) -> None:
    """API: mapping over an empty list needs no value to be looked at."""
    for limit in (0, 3):
        ending = await bench.run("rows", params={"day": "monday", "limit": limit})
        assert isinstance(ending, Succeeded)
        assert ending.size == limit


async def test_none_can_always_be_stored(bench: Bench) -> None:
    assert await bench.value("nothing") is None
    assert await bench.value("noop") is None


async def test_async_functions_are_awaited(bench: Bench) -> None:
    assert await bench.value("on_a_loop") == "monday"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("wrong_class", "task 'wrong_class' returned a value of class str, but declares int"),
        ("wrong_inside", "task 'wrong_inside' returned a value of class list, but declares list[int]"),
        ("wrong_bool", "task 'wrong_bool' returned a value of class bool, but declares int"),
        ("wrong_literal", "task 'wrong_literal' returned a value of class str, but declares Literal['a', 'b']"),
        ("wrong_range", "task 'wrong_range' returned a value of class int, but declares Annotated[int, "),
        ("unstorable", "task 'unstorable' returned a value that cannot be stored: a Thing"),
        ("unstorable_class", "task 'unstorable_class' returned a value that cannot be stored: Thing"),
    ],
)
async def test_a_value_that_breaks_its_promise_fails_for_good(bench: Bench, task: str, words: str) -> None:
    failure = await bench.failure(task)
    assert words in failure.error.message
    assert not failure.may_retry


# -- raising


async def test_skip_skips(bench: Bench) -> None:
    """API: `raise tm.Skip(reason)`."""
    assert await bench.run("skipped") == Skipped("not today")


async def test_fail_fails_without_retry(bench: Bench) -> None:
    """API: `raise tm.Fail(reason)`."""
    failure = await bench.failure("gives_up")
    assert (failure.error.type, failure.error.message, failure.may_retry) == ("Fail", "no use", False)


@pytest.mark.parametrize(("task", "may_retry"), [("picky_fits", True), ("picky_misfits", False), ("fails", True)])
async def test_the_filter_of_retries_decides(bench: Bench, task: str, may_retry: bool) -> None:
    """API: `tm.Retry(on=...)`."""
    assert (await bench.failure(task)).may_retry is may_retry


async def test_a_failure_shows_the_lines_of_the_author(bench: Bench) -> None:
    """W-16: error with traceback, without our own frames."""
    error = (await bench.failure("fails")).error
    assert (error.type, error.message) == ("ValueError", "broken on purpose")
    assert "executor_flows.py" in error.traceback
    assert "in helper" in error.traceback
    assert "runner.py" not in error.traceback


async def test_a_failure_that_says_too_much_is_cut(bench: Bench) -> None:
    error = (await bench.failure("says_much")).error
    assert len(error.message) <= MESSAGE_LIMIT
    assert len(error.traceback) <= TRACEBACK_LIMIT


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("mute", "MuteError"),
        ("leaves", "SystemExit"),
        ("interrupts", "KeyboardInterrupt"),
        ("leaves_the_loop", "SystemExit"),
        ("interrupts_the_loop", "KeyboardInterrupt"),
        ("raises_a_cancellation", "CancelledError"),
        ("cancels_itself", "CancelledError"),
        ("awaits_what_it_cancelled", "CancelledError"),
        ("closes_itself", "GeneratorExit"),
    ],
)
async def test_whatever_code_raises_is_its_own_failure(bench: Bench, task: str, kind: str) -> None:
    """Also a cancellation that nobody but the code itself asked for; it is tried again as any other failure."""
    failure = await bench.failure(task)
    assert (failure.error.type, failure.outcome, failure.may_retry) == (kind, "failed", True)
    assert await bench.value("noop") is None


@pytest.mark.parametrize("task", ["forks", "forks_on_a_loop"])
@pytest.mark.parametrize(("how", "code"), [("returns", 0), ("raises", 1), ("exits", 7)])
async def test_a_copy_that_code_forks_has_no_end_to_tell_of(bench: Bench, task: str, how: str, code: int) -> None:
    """W-2: each attempt ends once, where it began; what comes back from the function in a copy ends that copy."""
    assert await bench.value(task, params={"day": how}) == code
    assert await bench.value("noop") is None


# -- deferring


async def test_a_deferral_ends_the_execution_and_is_passed_the_next_time(bench: Bench) -> None:
    """API: the same call returns at once when woken; `except Exception` does not catch it."""
    first = await bench.run("naps")
    assert isinstance(first, Deferred)
    assert first.ends_on_wake
    second = await bench.run("naps", deferrals=1)
    assert isinstance(second, Deferred)
    assert second.wake_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert await bench.value("naps", deferrals=2) == "rested"


@pytest.mark.parametrize("task", ["polls", "polls_a_coroutine", "polls_on_a_loop"])
async def test_a_poll_that_says_yes_is_no_deferral(bench: Bench, task: str) -> None:
    """API: `ctx.defer(poll=fn, every="30s")`."""
    params = {"file": str(bench.folder / "wanted")}
    ending = await bench.run(task, workflow="loose", params=params)
    assert isinstance(ending, Deferred)
    assert (ending.ends_on_wake, ending.every) == (False, 30.0)
    (bench.folder / "wanted").touch()
    assert await bench.value(task, workflow="loose", params=params) == "found"


async def test_a_deferral_says_what_is_wrong_with_it(bench: Bench) -> None:
    failure = await bench.failure("defers_badly")
    assert failure.error.type == "TypeError"
    assert "every=" in failure.error.message


# -- talking


async def test_what_is_logged_arrives_in_order_and_before_the_end(bench: Bench) -> None:
    """API: `ctx.log`, structured."""
    assert isinstance(await bench.run("talks"), Succeeded)
    assert bench.ledger.said() == [*(f"line {number}" for number in range(20)), "bad"]
    first, last = bench.ledger.records[0][1], bench.ledger.records[-1][1]
    assert (first.level, last.level) == ("info", "error")
    assert first.fields["number"] == 0
    assert first.fields["name"] == "n"
    assert "Thing" in str(first.fields["thing"])


async def test_a_field_that_cannot_be_stored_is_shown(bench: Bench) -> None:
    """API: `ctx.log`: whatever is logged, no record is lost for it, and neither is what comes with it."""
    assert isinstance(await bench.run("talks_of_odd_things"), Succeeded)
    assert bench.ledger.said() == ["before", "odd", "after"]
    fields = bench.ledger.records[1][1].fields
    assert msgspec.msgpack.decode(encode(fields)) == fields
    assert (fields["big"], fields["within"]) == (str(2**80), [1, {"big": str(2**70), str(-(2**70)): 2}])
    assert fields["half"] == "'\\ud800'"
    assert "Thing" in fields["things"][1]  # type: ignore[index]
    assert (fields["mute"], fields["last"]) == ("ValueError: no", 2**64 - 1)
    assert str(fields["deep"]).count("[") > 100


async def test_whoever_logs_much_is_kept_at_both_ends(bench: Bench) -> None:
    """At most 10 MiB of an attempt: the first 8, the last one, and a line in between."""
    assert isinstance(await bench.run("talks_much"), Succeeded)
    said = bench.ledger.said()
    (note,) = [line for line in said if "left out" in line]
    assert said[-1] == "the end"
    assert HEAD_LIMIT <= bench.ledger.bytes <= HEAD_LIMIT + TAIL_LIMIT + LOG_LINE_LIMIT
    left_out, kept = int(note.split()[1]), len(said) - 2
    assert left_out == (300 - kept) * 60_000


async def test_logs_come_from_loops_and_threads(bench: Bench) -> None:
    await bench.run("talks_on_a_loop")
    assert bench.ledger.said() == ["here", "there"]


# -- stopping


@pytest.mark.parametrize("task", ["blocks", "waits"])
async def test_time_runs_out(bench: Bench, task: str) -> None:
    """Tasks: timeout is retryable."""
    order = await bench.start(task, timeout=60.0)
    await bench.forward(59.0)
    assert bench.ledger.endings == []
    await bench.forward(1.0)
    ending = await bench.ledger.ending(order.key)
    assert isinstance(ending, Failed)
    assert (ending.outcome, ending.may_retry, ending.error.message) == ("timeout", True, "it ran longer than 60 s")
    bench.let_go()
    await until(lambda: not bench.executor.running())
    assert len(bench.ledger.endings) == 1


@pytest.mark.parametrize("task", ["blocks", "waits"])
async def test_cancel_stops_what_runs(bench: Bench, task: str) -> None:
    """Tasks: cancel reaches the running code."""
    order = await bench.start(task)
    await bench.executor.cancel(order.key, "not wanted")
    await bench.executor.cancel(order.key, "really not")
    assert await bench.ledger.ending(order.key) == Cancelled("not wanted")
    bench.let_go()
    await until(lambda: not bench.executor.running())
    assert len(bench.ledger.endings) == 1
    assert bench.executor.free_slots() == 8


@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize("task", ["swallows", "ignores_signals"])
async def test_cancel_stops_what_does_not_want_to(name: str, task: str, tmp_path: Path) -> None:
    """Tasks: after the grace it is over, whatever the code thinks of it."""
    async with bench_of(name, tmp_path, grace=0.3) as bench:
        order = await bench.start(task)
        await bench.executor.cancel(order.key, "not wanted")
        if name == "in_process":
            await until(lambda: bench.ledger.endings or bench.clock.next_wakeup() is not None)
            bench.clock.advance_to(0.3)
        assert await bench.ledger.ending(order.key) == Cancelled("not wanted")


async def test_cancel_of_what_is_unknown_is_no_error(bench: Bench) -> None:
    order = bench.order("noop")
    await bench.executor.cancel(order.key, "never was")
    assert bench.ledger.endings == []


async def test_cancel_in_the_moment_of_submission_is_heard(bench: Bench) -> None:
    order = bench.order("waits", workflow="loose", params=bench.files())
    await bench.executor.submit(order)
    await bench.executor.cancel(order.key, "at once")
    assert await bench.ledger.ending(order.key) == Cancelled("at once")
    await until(lambda: not bench.executor.running())
    assert bench.executor.free_slots() == 8


# -- places


async def test_what_runs_takes_a_place_and_lives(bench: Bench) -> None:
    """W-11: heartbeats go on while the code lives."""
    assert bench.executor.free_slots() == 8
    one, two = await bench.start("blocks"), await bench.start("waits", "other")
    assert bench.executor.running() == {one.key, two.key}
    assert bench.executor.free_slots() == 6
    bench.let_go()
    await bench.ledger.ending(one.key)
    assert bench.executor.running() == {two.key}
    assert bench.executor.free_slots() == 7


async def test_many_attempts_come_through(bench: Bench) -> None:
    orders = [bench.order("noop") for _ in range(60)]
    for order in orders:
        await until(bench.executor.free_slots)
        await bench.executor.submit(order)
    for order in orders:
        assert isinstance(await bench.ledger.ending(order.key), Succeeded)
    assert bench.executor.free_slots() == 8


async def test_what_is_abandoned_never_reports(bench: Bench) -> None:
    """API: `kill_worker`: running attempts vanish without a report, and the places are free."""
    await bench.start("blocks")
    await bench.start("waits", "other", timeout=60.0)
    bench.executor.abandon()
    assert bench.executor.free_slots() == 8
    assert bench.executor.running() == set()
    bench.let_go()
    bench.let_go("other")
    assert await bench.value("noop") is None
    assert len(bench.ledger.endings) == 1


@pytest.mark.parametrize("name", EXECUTORS)
async def test_closing_ends_what_runs_without_a_report(name: str, tmp_path: Path) -> None:
    """Executors: within the patience. A thread cannot be killed: what it runs lives on, and may not begin elsewhere."""
    bench = Bench(name, tmp_path)
    await bench.executor.open()
    try:
        await bench.start("blocks")
        await bench.start("waits", "other")
        async with asyncio.timeout(10):
            await bench.executor.close(0.1)
        left = {"blocks"} if name == "in_process" else set()
        assert {key.task for key in bench.executor.running()} == left
        assert bench.ledger.endings == []
    finally:
        bench.let_go()
        bench.let_go("other")


@pytest.mark.parametrize("name", EXECUTORS)
async def test_nothing_is_left_open(name: str, tmp_path: Path) -> None:
    """No descriptor and no child process outlives its attempt."""
    async with bench_of(name, tmp_path) as bench:
        for task in ("noop", "fails", "talks", "on_a_loop"):
            await bench.run(task)
        before = len(os.listdir("/proc/self/fd"))
        for task in ("noop", "fails", "talks", "on_a_loop") * 5:
            await bench.run(task)
        await until(lambda: not bench.executor.running())
        assert len(os.listdir("/proc/self/fd")) == before


async def test_wake_up_times_come_from_the_clock_of_the_node(bench: Bench) -> None:
    """API: `ctx.defer(for_=...)`; also of a poll, wherever the code runs."""
    ending = await bench.run("naps")
    assert isinstance(ending, Deferred)
    assert ending.wake_at == bench.clock.now() + timedelta(hours=2)
    polled = await bench.run("polls", workflow="loose", params={"file": str(bench.folder / "wanted")})
    assert isinstance(polled, Deferred)
    assert polled.wake_at == bench.clock.now() + timedelta(seconds=30)


async def test_a_workflow_that_cannot_be_found_again(bench: Bench) -> None:
    """Only in this process; elsewhere that is said when it is submitted."""
    bench.workflows["hidden"] = hidden()
    if bench.executor.name == "in_process":
        assert await bench.value("one", workflow="hidden", params={}) == 1
        return
    with pytest.raises(OperationError, match="at the top level of a module"):
        await bench.executor.submit(bench.order("one", workflow="hidden", params={}))
    assert bench.executor.running() == set()
