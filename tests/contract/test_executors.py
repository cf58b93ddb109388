"""The contract of every executor: each attempt runs at most once, and its result is reported exactly once."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.contract.executor_harness import ExecutorHarness, open_harness, until
from tests.contract.executor_workflows import Row, Small, hidden
from tests.contract.remote_harness import LAUNCHERS, open_remote_harness
from tidemill.engine.workflows.executors.attempt_output import (
    HEAD_LIMIT,
    MESSAGE_LIMIT,
    TAIL_LIMIT,
)
from tidemill.engine.workflows.executors.interface import STOP_GRACE_PERIOD, ItemOfList, ListInput, SingleInput
from tidemill.kernel.author_errors import TRACEBACK_LIMIT
from tidemill.kernel.errors import OperationError
from tidemill.telemetry.log_records import LOG_LINE_LIMIT
from tidemill.testing.faults.executors import FaultyExecutor
from tidemill.workflows.attempt_results import Cancelled, Deferred, Failed, HandedBack, Skipped, Succeeded
from tidemill.workflows.node_calls import RecordCall, StepsCall, StepValueCall
from tidemill.workflows.waits import Answer, WaitRecord

EXECUTORS = ["in_process", "subprocess", "worker"]

EVERYWHERE = pytest.mark.parametrize("harness", [*EXECUTORS, *LAUNCHERS], indirect=True)
"""Also for executors whose attempts run outside the node. The other tests are about what all executors share."""

REMOTE = pytest.mark.parametrize("harness", LAUNCHERS, indirect=True)
"""Only for those."""

encode = msgspec.msgpack.encode


@pytest.fixture(params=EXECUTORS)
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ExecutorHarness]:
    """Each executor, opened."""
    async with open_any_harness(request.param, tmp_path) as harness:
        yield harness


def open_any_harness(name: str, folder: Path, grace: float = STOP_GRACE_PERIOD) -> Any:
    """An open executor of any kind."""
    if name in LAUNCHERS:
        return open_remote_harness(name, folder, grace)
    return open_harness(name, folder, grace=grace)


# -- starting


@EVERYWHERE
async def test_an_attempt_that_is_submitted_twice_runs_once(harness: ExecutorHarness) -> None:
    """Executors: idempotent by attempt id, while it runs and after."""
    request = await harness.start("blocks")
    await harness.executor.submit(request)
    harness.release()
    await harness.listener.wait_for_ending(request.key)
    await harness.executor.submit(request)
    assert await harness.value("noop") is None
    assert [key for key, _ in harness.listener.endings].count(request.key) == 1
    assert harness.listener.started.count(request.key) == 1


@EVERYWHERE
async def test_an_attempt_whose_start_is_rejected_never_runs(harness: ExecutorHarness) -> None:
    """W-2: running starts with the handshake; a rejected attempt reports no result."""
    harness.listener.rejects_starts = True
    request = harness.request("blocks", workflow="loose", params=harness.files())
    await harness.executor.submit(request)
    await until(lambda: not harness.executor.running())
    assert not Path(harness.files()["started"]).exists()
    expected = [Cancelled("another server has recorded its end")] if harness.executor.outlives_node else []
    assert [ending for _, ending in harness.listener.endings] == expected


async def test_an_attempt_whose_start_cannot_be_recorded_is_handed_back(harness: ExecutorHarness) -> None:
    """W-2: nothing runs that the store does not know."""
    harness.listener.fails_starts = True
    ending = await harness.run("noop")
    assert isinstance(ending, HandedBack)
    assert "the store is unavailable" in ending.reason


@REMOTE
async def test_a_start_that_cannot_be_recorded_is_repeated(harness: ExecutorHarness) -> None:
    """W-2: a unit waits for its start to be recorded; nothing runs before."""
    harness.listener.fails_starts = True
    request = harness.request("blocks", workflow="loose", params=harness.files())
    await harness.executor.submit(request)
    await until(lambda: harness.listener.failed_starts > 1)
    assert not Path(harness.files()["started"]).exists()
    harness.listener.fails_starts = False
    harness.release()
    assert isinstance(await harness.listener.wait_for_ending(request.key), Succeeded)
    assert harness.listener.started == [request.key]


async def test_a_recorded_start_is_not_recorded_again(harness: ExecutorHarness) -> None:
    """W-2: the claim of an immediate executor may record the start as well."""
    assert await harness.value("total", inputs={"double": ListInput((encode(Row(1)),))}, has_begun=True) == 1
    assert harness.listener.started == []


@EVERYWHERE
async def test_code_that_is_not_loaded_is_rejected(harness: ExecutorHarness) -> None:
    """W-19: nothing is started."""
    with pytest.raises(OperationError, match="not loaded"):
        await harness.executor.submit(harness.request("one", workflow="unknown"))
    assert harness.executor.running() == set()
    assert harness.listener.started == []


# -- calls to the node


@EVERYWHERE
@pytest.mark.parametrize(
    ("task", "value"), [("pushes", ["emitted", 2, 3, 4, 5, 6]), ("pushes_without_await", [1, 2, 3, 4])]
)
async def test_a_task_pushes_events_through_its_node(harness: ExecutorHarness, task: str, value: list[object]) -> None:
    """API: `await ctx.push(...)` in an `async def`, without await in any other; logs go on beside it."""
    assert sorted(await harness.value(task), key=str) == sorted(value, key=str)
    assert {call.accumulator for call in harness.calls} == {"prices"}
    assert len(harness.calls) == value[-1]


@EVERYWHERE
@pytest.mark.parametrize("task", ["starts", "starts_without_await"])
async def test_a_task_starts_runs_under_keys_that_every_attempt_has(harness: ExecutorHarness, task: str) -> None:
    """API: the key is (run, task, element, call)."""
    request = harness.request(task)
    await harness.executor.submit(request)
    ending = await harness.listener.wait_for_ending(request.key)
    assert isinstance(ending, Succeeded)
    assert msgspec.msgpack.decode(ending.value) == [f"task:{request.key.run}/{task}:{number}" for number in (1, 2)]


@EVERYWHERE
async def test_an_error_of_a_call_is_the_one_that_a_caller_outside_gets(harness: ExecutorHarness) -> None:
    """API: errors of requests keep their code and their facts."""
    answer = ["unknown accumulator", "accumulator_not_found", 404, {"accumulator": "unknown"}]
    assert await harness.value("pushes_to_an_unknown_accumulator") == answer
    failure = await harness.failure("pushes_into_a_defect")
    assert "a defect" in failure.error.message


@EVERYWHERE
@pytest.mark.parametrize("task", ["steps", "steps_without_await"])
async def test_a_repeated_attempt_gets_the_steps_of_the_one_before(harness: ExecutorHarness, task: str) -> None:
    """L-1, L-3, L-6: values, large ones read one by one, and failures of the same try; nothing is done again."""
    answer = [1, 2, 5000, "LookupError", "not there", "fails_as_a_step"]
    assert await harness.value(task) == answer
    assert len([call for call in harness.calls if isinstance(call, RecordCall)]) == 4
    assert StepsCall() not in harness.calls
    recorded, harness.calls[:] = dict(harness.steps), []
    request = harness.request(task)
    request = replace(request, key=request.key._replace(attempt=2))
    await harness.executor.submit(request)
    ending = await harness.listener.wait_for_ending(request.key)
    assert isinstance(ending, Succeeded)
    assert msgspec.msgpack.decode(ending.value) == answer
    assert [type(call) for call in harness.calls] == [StepsCall, StepValueCall]
    assert harness.steps == recorded


@EVERYWHERE
@pytest.mark.parametrize("task", ["asks", "asks_without_await"])
async def test_what_a_task_asks_travels_with_its_deferral(harness: ExecutorHarness, task: str) -> None:
    """L-6, L-7: and the answer with the records of the next attempt."""
    deferred = await harness.run(task)
    assert isinstance(deferred, Deferred)
    (asked,) = deferred.waits
    assert (asked.name, asked.call, asked.text, asked.timeout, asked.default) == ("factor", 1, "How many?", 3600.0, "3")
    assert (asked.by, asked.type.schema, asked.is_open) == (("role:admin",), {"type": "integer"}, False)
    answer = Answer(name="factor", value=5, variant=None, by="account:ada", at=datetime(2026, 1, 1, tzinfo=UTC))
    harness.waits.append(WaitRecord("factor", 1, 1, "answered", None, answer))
    request = harness.request(task)
    request = replace(request, key=request.key._replace(attempt=2))
    await harness.executor.submit(request)
    ending = await harness.listener.wait_for_ending(request.key)
    assert isinstance(ending, Succeeded)
    assert msgspec.msgpack.decode(ending.value) == [5, "account:ada"]


@EVERYWHERE
async def test_an_attempt_that_is_over_is_stopped_at_its_next_step(harness: ExecutorHarness) -> None:
    """L-2: even if it catches every error."""
    failure = await harness.failure("steps_too_late")
    assert (failure.may_retry, failure.error.type) == (False, "SupersededError")


@EVERYWHERE
async def test_a_call_that_waits_can_be_cancelled(harness: ExecutorHarness) -> None:
    """W-11: a task that waits for a full accumulator does not keep the node from stopping it."""
    request = harness.request("pushes_in_vain")
    await harness.executor.submit(request)
    await until(lambda: harness.calls)
    await harness.executor.cancel(request.key, "no longer wanted")
    assert isinstance(await harness.listener.wait_for_ending(request.key), Cancelled)


# -- arguments


@EVERYWHERE
async def test_params_and_context_reach_the_code(harness: ExecutorHarness) -> None:
    """API: ctx.run_id, ctx.attempt, ctx.token, ctx.slot."""
    slot = datetime(2026, 3, 1, tzinfo=UTC)
    request = harness.request("day", number=2, slot=slot)
    await harness.executor.submit(request)
    ending = await harness.listener.wait_for_ending(request.key)
    assert isinstance(ending, Succeeded)
    run = request.key.run
    assert msgspec.msgpack.decode(ending.value) == ["monday", 7, 2, run, f"{run}/day#2", slot.isoformat()]


async def test_without_a_class_params_are_read_by_key(harness: ExecutorHarness) -> None:
    """API: a workflow without `params=` accepts any keywords."""
    assert await harness.value("anything", workflow="loose", params={"who": "me", "count": 2}) == "me and 2"


async def test_the_context_merges_params_and_dicts(harness: ExecutorHarness) -> None:
    """API: run params, then keys of dict results; the last wins, and an unknown key gets a suggestion."""
    assert await harness.value("merged", inputs={"facts": SingleInput(encode({"limit": 1}))}) == ["monday", 1]
    assert await harness.value("merged") == ["monday", 7]
    failure = await harness.failure("unknown_key")
    assert failure.error.type == "KeyError"
    assert "did you mean 'limit'?" in failure.error.message


@EVERYWHERE
async def test_a_list_is_mapped_and_collected(harness: ExecutorHarness) -> None:
    """API: each=."""
    rows = encode([Row(1), Row(2), Row(3)])
    assert await harness.value("double", inputs={"rows": ItemOfList(rows, 1)}, element=1) == Row(4)
    assert await harness.value("double", inputs={"rows": ItemOfList(rows, 2)}, element=2) == Row(6)
    doubled = (encode(Row(2)), encode(Row(4)))
    assert await harness.value("total", inputs={"double": ListInput(doubled)}) == 6


async def test_a_missing_input_is_none_or_the_default(harness: ExecutorHarness) -> None:
    """API: rules may run a task without a value."""
    assert await harness.value("fallback") == [None, 5]
    assert await harness.value("fallback", inputs={"total": SingleInput(encode(1))}) == [None, 1]


async def test_each_task_gets_its_own_copy_of_a_value(harness: ExecutorHarness) -> None:
    """Two tasks never share a mutable value."""
    value = encode({"limit": 1})
    for _ in range(2):
        assert await harness.value("change", inputs={"facts": SingleInput(value)}) == {"limit": 1, "changed": 1}


async def test_an_input_that_cannot_be_decoded_fails_without_retry(harness: ExecutorHarness) -> None:
    failure = await harness.failure("small", inputs={"choose": SingleInput(b"\xc1")})
    assert not failure.may_retry
    assert "the value of task 'choose' cannot be decoded" in failure.error.message


# -- results


@pytest.mark.parametrize(("total", "variant"), [(3, "Small"), (30, "Large"), (0, "None")])
async def test_a_value_is_named_by_its_variant(harness: ExecutorHarness, total: int, variant: str) -> None:
    """API: a union return type routes; the names are those of the edges."""
    ending = await harness.run("choose", inputs={"total": SingleInput(encode(total))})
    assert isinstance(ending, Succeeded)
    assert ending.variant == variant


async def test_a_routed_value_can_be_decoded(harness: ExecutorHarness) -> None:
    ending = await harness.run("choose", inputs={"total": SingleInput(encode(3))})
    assert isinstance(ending, Succeeded)
    assert await harness.value("choose", inputs={"total": SingleInput(encode(3))}) == Small(3)
    assert await harness.value("small", inputs={"choose": SingleInput(ending.value)}) == 3


@EVERYWHERE
async def test_a_list_has_a_size(harness: ExecutorHarness) -> None:
    """API: mapping over an empty list needs no decoded value."""
    for limit in (0, 3):
        ending = await harness.run("rows", params={"day": "monday", "limit": limit})
        assert isinstance(ending, Succeeded)
        assert ending.size == limit


async def test_none_can_always_be_stored(harness: ExecutorHarness) -> None:
    assert await harness.value("nothing") is None
    assert await harness.value("noop") is None


async def test_async_functions_are_awaited(harness: ExecutorHarness) -> None:
    assert await harness.value("on_a_loop") == "monday"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("wrong_class", "task 'wrong_class' returned a value of class str, but declares int"),
        ("wrong_inside", "task 'wrong_inside' returned a value of class list, but declares list[int]"),
        ("wrong_bool", "task 'wrong_bool' returned a value of class bool, but declares int"),
        ("wrong_literal", "task 'wrong_literal' returned a value of class str, but declares Literal['a', 'b']"),
        ("wrong_range", "task 'wrong_range' returned a value of class int, but declares int: Expected `int` >= 0"),
        ("unstorable", "task 'unstorable' returned a value that cannot be stored: a Thing"),
        ("unstorable_class", "task 'unstorable_class' returned a value that cannot be stored: Thing"),
    ],
)
async def test_a_value_of_the_wrong_type_fails_without_retry(harness: ExecutorHarness, task: str, words: str) -> None:
    failure = await harness.failure(task)
    assert words in failure.error.message
    assert not failure.may_retry


# -- raising


@EVERYWHERE
async def test_skip_skips(harness: ExecutorHarness) -> None:
    """API: `raise tm.Skip(reason)`."""
    assert await harness.run("skipped") == Skipped("not today")


@EVERYWHERE
async def test_fail_fails_without_retry(harness: ExecutorHarness) -> None:
    """API: `raise tm.Fail(reason)`."""
    failure = await harness.failure("gives_up")
    assert (failure.error.type, failure.error.message, failure.may_retry) == ("Fail", "no use", False)


@EVERYWHERE
@pytest.mark.parametrize(("task", "may_retry"), [("picky_fits", True), ("picky_misfits", False), ("fails", True)])
async def test_the_retry_filter_decides(harness: ExecutorHarness, task: str, may_retry: bool) -> None:
    """API: `tm.Retry(on=...)`."""
    assert (await harness.failure(task)).may_retry is may_retry


@EVERYWHERE
async def test_a_failure_shows_the_frames_of_author_code(harness: ExecutorHarness) -> None:
    """W-16: error with traceback, without Tidemill's frames."""
    error = (await harness.failure("fails")).error
    assert (error.type, error.message) == ("ValueError", "broken on purpose")
    assert "executor_workflows.py" in error.traceback
    assert "in helper" in error.traceback
    assert "runner.py" not in error.traceback


async def test_a_long_error_is_cut(harness: ExecutorHarness) -> None:
    error = (await harness.failure("says_much")).error
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
async def test_every_error_of_author_code_is_a_failure(harness: ExecutorHarness, task: str, kind: str) -> None:
    """Also a cancellation that the code itself requested; it is retried as any other failure."""
    failure = await harness.failure(task)
    assert (failure.error.type, failure.outcome, failure.may_retry) == (kind, "failed", True)
    assert await harness.value("noop") is None


@pytest.mark.parametrize("task", ["forks", "forks_on_a_loop"])
@pytest.mark.parametrize(("how", "code"), [("returns", 0), ("raises", 1), ("exits", 7)])
async def test_a_process_that_code_forks_reports_nothing(
    harness: ExecutorHarness, task: str, how: str, code: int
) -> None:
    """W-2: each attempt ends once, in the process it started in; in a forked copy the return ends that copy."""
    assert await harness.value(task, params={"day": how}) == code
    assert await harness.value("noop") is None


# -- deferring


@EVERYWHERE
async def test_a_deferral_ends_the_attempt_and_returns_after_the_wake_up(harness: ExecutorHarness) -> None:
    """API: the same call returns immediately when woken; `except Exception` does not catch it."""
    first = await harness.run("naps")
    assert isinstance(first, Deferred)
    assert first.ends_on_wake
    second = await harness.run("naps", deferrals=1)
    assert isinstance(second, Deferred)
    assert second.wake_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert await harness.value("naps", deferrals=2) == "rested"


@pytest.mark.parametrize("task", ["polls", "polls_a_coroutine", "polls_on_a_loop"])
async def test_a_poll_that_returns_true_does_not_defer(harness: ExecutorHarness, task: str) -> None:
    """API: `ctx.defer(poll=fn, every="30s")`."""
    params = {"file": str(harness.folder / "wanted")}
    ending = await harness.run(task, workflow="loose", params=params)
    assert isinstance(ending, Deferred)
    assert (ending.ends_on_wake, ending.every) == (False, 30.0)
    (harness.folder / "wanted").touch()
    assert await harness.value(task, workflow="loose", params=params) == "found"


async def test_invalid_arguments_of_a_deferral_fail(harness: ExecutorHarness) -> None:
    failure = await harness.failure("defers_badly")
    assert failure.error.type == "TypeError"
    assert "every=" in failure.error.message


# -- logging


@EVERYWHERE
async def test_log_records_arrive_in_order_and_before_the_result(harness: ExecutorHarness) -> None:
    """API: `ctx.log`, structured."""
    assert isinstance(await harness.run("talks"), Succeeded)
    assert harness.listener.messages() == [*(f"line {number}" for number in range(20)), "bad"]
    first, last = harness.listener.records[0][1], harness.listener.records[-1][1]
    assert (first.level, last.level) == ("info", "error")
    assert first.fields["number"] == 0
    assert first.fields["name"] == "n"
    assert "Thing" in str(first.fields["thing"])


async def test_a_field_that_cannot_be_stored_is_logged_as_text(harness: ExecutorHarness) -> None:
    """API: `ctx.log`: no value makes a record or its other fields disappear."""
    assert isinstance(await harness.run("talks_of_odd_things"), Succeeded)
    assert harness.listener.messages() == ["before", "odd", "after"]
    fields = harness.listener.records[1][1].fields
    assert msgspec.msgpack.decode(encode(fields)) == fields
    assert (fields["big"], fields["within"]) == (str(2**80), [1, {"big": str(2**70), str(-(2**70)): 2}])
    assert fields["half"] == "'\\ud800'"
    assert "Thing" in fields["things"][1]
    assert (fields["mute"], fields["last"]) == ("ValueError: no", 2**64 - 1)
    assert str(fields["deep"]).count("[") > 100


async def test_the_beginning_and_the_end_of_a_long_log_are_kept(harness: ExecutorHarness) -> None:
    """At most 10 MiB of an attempt: the first 8, the last one, and a line in between."""
    assert isinstance(await harness.run("talks_much"), Succeeded)
    messages = harness.listener.messages()
    (note,) = [line for line in messages if "left out" in line]
    assert messages[-1] == "the end"
    assert HEAD_LIMIT <= harness.listener.bytes <= HEAD_LIMIT + TAIL_LIMIT + LOG_LINE_LIMIT
    left_out, kept = int(note.split()[1]), len(messages) - 2
    assert left_out == (300 - kept) * 60_000


async def test_logs_come_from_loops_and_threads(harness: ExecutorHarness) -> None:
    await harness.run("talks_on_a_loop")
    assert harness.listener.messages() == ["here", "there"]


@EVERYWHERE
async def test_output_of_author_code_is_in_the_log(harness: ExecutorHarness) -> None:
    """leoflow.md 80: printed lines, every logger from INFO on, and warnings, each once, with level and logger."""
    assert isinstance(await harness.run("writes_everywhere"), Succeeded)
    records = [record for _, record in harness.listener.records]
    assert {(one.stream, one.level, one.logger, one.message.rpartition(": ")[2]) for one in records} == {
        ("stdout", "info", "", "printed"),
        ("stdout", "info", "", "without an end"),
        ("stderr", "warning", "", "to stderr"),
        ("log", "info", "library", "read 3 rows"),
        ("log", "error", "", "of the context"),
        ("log", "error", "executor_workflows.quiet", "loud enough"),
        ("log", "warning", "py.warnings", "old"),
    }
    assert len(records) == 7
    (fields,) = [one.fields for one in records if one.logger == "library"]
    assert fields == {"rows": 3}


async def test_output_of_a_coroutine_is_in_its_log(harness: ExecutorHarness) -> None:
    await harness.run("says_on_a_loop")
    printed = harness.listener.messages("stdout")
    assert printed == ["on the loop", "on a thread of the loop"]


@EVERYWHERE
async def test_output_is_not_kept_unless_it_is_wanted(
    harness: ExecutorHarness, capfd: pytest.CaptureFixture[str]
) -> None:
    """`ctx.log` is; the rest goes where it went."""
    request = replace(harness.request("writes_everywhere"), captures_output=False)
    await harness.executor.submit(request)
    assert isinstance(await harness.listener.wait_for_ending(request.key), Succeeded)
    assert [record.message for _, record in harness.listener.records] == ["of the context"]
    if not harness.executor.outlives_node:  # else a unit has printed it
        assert "printed\nwithout an end" in capfd.readouterr().out


# -- stopping


@pytest.mark.parametrize("task", ["blocks", "waits"])
async def test_a_timeout_fails_the_attempt(harness: ExecutorHarness, task: str) -> None:
    """Tasks: timeout is retryable."""
    request = await harness.start(task, timeout=60.0)
    await harness.advance(59.0)
    assert harness.listener.endings == []
    await harness.advance(1.0)
    ending = await harness.listener.wait_for_ending(request.key)
    assert isinstance(ending, Failed)
    assert (ending.outcome, ending.may_retry, ending.error.message) == ("timeout", True, "it ran longer than 60 s")
    harness.release()
    await until(lambda: not harness.executor.running())
    assert len(harness.listener.endings) == 1


@REMOTE
@pytest.mark.parametrize("task", ["blocks", "waits"])
async def test_a_unit_enforces_the_timeout_of_its_attempt(harness: ExecutorHarness, task: str) -> None:
    """Tasks: the clock is that of the unit, and needs no node."""
    request = await harness.start(task, timeout=0.5)
    ending = await harness.listener.wait_for_ending(request.key)
    assert isinstance(ending, Failed)
    assert (ending.outcome, ending.may_retry, ending.error.message) == ("timeout", True, "it ran longer than 0.5 s")
    await until(lambda: harness.executor.free_slots() == 8)
    assert len(harness.listener.endings) == 1


@EVERYWHERE
@pytest.mark.parametrize("task", ["blocks", "waits"])
async def test_cancel_stops_a_running_attempt(harness: ExecutorHarness, task: str) -> None:
    """Tasks: cancel reaches the running code."""
    request = await harness.start(task)
    await harness.executor.cancel(request.key, "not wanted")
    await harness.executor.cancel(request.key, "really not")
    assert await harness.listener.wait_for_ending(request.key) == Cancelled("not wanted")
    harness.release()
    await until(lambda: not harness.executor.running())
    assert len(harness.listener.endings) == 1
    await until(lambda: harness.executor.free_slots() == 8)


@pytest.mark.parametrize("name", [*EXECUTORS, *LAUNCHERS])
@pytest.mark.parametrize("task", ["swallows", "ignores_signals"])
async def test_cancel_stops_code_that_resists(name: str, task: str, tmp_path: Path) -> None:
    """Tasks: after the grace period the attempt has ended."""
    async with open_any_harness(name, tmp_path, grace=0.3) as harness:
        request = await harness.start(task)
        await harness.executor.cancel(request.key, "not wanted")
        if name == "in_process":
            await until(lambda: harness.listener.endings or harness.clock.next_wakeup() is not None)
            harness.clock.advance_to(0.3)
        assert await harness.listener.wait_for_ending(request.key) == Cancelled("not wanted")
        if harness.executor.outlives_node:
            await until(lambda: harness.executor.free_slots() == 8)  # its unit has ended too


@EVERYWHERE
async def test_cancelling_an_unknown_attempt_does_nothing(harness: ExecutorHarness) -> None:
    request = harness.request("noop")
    await harness.executor.cancel(request.key, "never was")
    assert harness.listener.endings == []


@EVERYWHERE
async def test_cancelling_right_after_submission_works(harness: ExecutorHarness) -> None:
    request = harness.request("waits", workflow="loose", params=harness.files())
    await harness.executor.submit(request)
    await harness.executor.cancel(request.key, "at once")
    assert await harness.listener.wait_for_ending(request.key) == Cancelled("at once")
    await until(lambda: not harness.executor.running())
    await until(lambda: harness.executor.free_slots() == 8)


# -- slots


@EVERYWHERE
async def test_a_running_attempt_takes_a_slot(harness: ExecutorHarness) -> None:
    """W-11: heartbeats continue while the code runs."""
    assert harness.executor.free_slots() == 8
    one, two = await harness.start("blocks"), await harness.start("waits", "other")
    assert harness.executor.running() == {one.key, two.key}
    assert harness.executor.free_slots() == 6
    harness.release()
    await harness.listener.wait_for_ending(one.key)
    assert harness.executor.running() == {two.key}
    await until(lambda: harness.executor.free_slots() == 7)


@EVERYWHERE
async def test_many_attempts_succeed(harness: ExecutorHarness) -> None:
    """Executors: more than there are slots."""
    requests = [harness.request("noop") for _ in range(9 if harness.executor.outlives_node else 60)]
    for request in requests:
        await until(harness.executor.free_slots)
        await harness.executor.submit(request)
    for request in requests:
        assert isinstance(await harness.listener.wait_for_ending(request.key), Succeeded)
    await until(lambda: harness.executor.free_slots() == 8)


async def test_a_killed_executor_reports_nothing_and_runs_new_attempts(harness: ExecutorHarness) -> None:
    """API: `kill_worker`: running attempts vanish without a report, and their slots are free."""
    original = harness.executor
    faulty = harness.executor = FaultyExecutor(harness.build, harness.listener, harness.clock)
    await faulty.open()
    try:
        await harness.start("blocks")
        await harness.start("waits", "other", timeout=60.0)
        await faulty.kill()
        assert faulty.free_slots() == 8
        assert faulty.running() == set()
        harness.release()
        harness.release("other")
        assert await harness.value("noop") is None
        assert len(harness.listener.endings) == 1
    finally:
        await faulty.close(1.0)
        harness.executor = original


@pytest.mark.parametrize("name", EXECUTORS)
async def test_closing_stops_attempts_without_reports(name: str, tmp_path: Path) -> None:
    """Executors: within the timeout. A thread cannot be killed: its attempt stays, and must not start elsewhere."""
    harness = ExecutorHarness(name, tmp_path)
    await harness.executor.open()
    try:
        await harness.start("blocks")
        await harness.start("waits", "other")
        async with asyncio.timeout(10):
            await harness.executor.close(0.1)
        left = {"blocks"} if name == "in_process" else set()
        assert {key.task for key in harness.executor.running()} == left
        assert harness.listener.endings == []
    finally:
        harness.release()
        harness.release("other")


@REMOTE
async def test_closing_leaves_units_to_the_next_node(harness: ExecutorHarness) -> None:
    """W-12: within the timeout, and without a report. The code runs on."""
    await harness.start("blocks")
    async with asyncio.timeout(10):
        await harness.executor.close(0.1)
    assert harness.listener.endings == []
    assert harness.executor.free_slots() == 0
    harness.release()
    await until(Path(harness.files()["ended"]).exists)


@pytest.mark.parametrize("name", EXECUTORS)
async def test_nothing_is_left_open(name: str, tmp_path: Path) -> None:
    """No descriptor and no child process outlives its attempt."""
    async with open_harness(name, tmp_path) as harness:
        for task in ("noop", "fails", "talks", "on_a_loop"):
            await harness.run(task)
        before = len(os.listdir("/proc/self/fd"))
        for task in ("noop", "fails", "talks", "on_a_loop") * 5:
            await harness.run(task)
        await until(lambda: not harness.executor.running())
        assert len(os.listdir("/proc/self/fd")) == before


@EVERYWHERE
async def test_wake_up_times_come_from_the_clock_of_the_node(harness: ExecutorHarness) -> None:
    """API: `ctx.defer(for_=...)`; also of a poll, wherever the code runs."""
    ending = await harness.run("naps")
    assert isinstance(ending, Deferred)
    assert ending.wake_at == harness.clock.now() + timedelta(hours=2)
    polled = await harness.run("polls", workflow="loose", params={"file": str(harness.folder / "wanted")})
    assert isinstance(polled, Deferred)
    assert polled.wake_at == harness.clock.now() + timedelta(seconds=30)


@EVERYWHERE
async def test_a_workflow_that_cannot_be_imported_runs_only_in_this_process(harness: ExecutorHarness) -> None:
    """The subprocess executor rejects it when it is submitted."""
    harness.workflows["hidden"] = hidden()
    if harness.executor.name == "in_process":
        assert await harness.value("one", workflow="hidden", params={}) == 1
        return
    with pytest.raises(OperationError, match="at the top level of a module"):
        await harness.executor.submit(harness.request("one", workflow="hidden", params={}))
    assert harness.executor.running() == set()
