"""Trigger rules end to end, and how a run ends."""

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, see_through, states

WORDS = {"R": "success", "K": "skipped", "U": "upstream_failed"}

# What becomes of a task behind two others, by how those ended: success, failed, sKipped.
TABLE = {
    "all_success": {"SS": "R", "SF": "U", "SK": "K", "FF": "U", "FK": "U", "KK": "K"},
    "all_failed": {"SS": "K", "SF": "K", "SK": "K", "FF": "R", "FK": "K", "KK": "K"},
    "all_done": {"SS": "R", "SF": "R", "SK": "R", "FF": "R", "FK": "R", "KK": "R"},
    "one_success": {"SS": "R", "SF": "R", "SK": "R", "FF": "U", "FK": "U", "KK": "K"},
    "one_failed": {"SS": "K", "SF": "R", "SK": "K", "FF": "R", "FK": "R", "KK": "K"},
    "one_done": {"SS": "R", "SF": "R", "SK": "R", "FF": "R", "FK": "R", "KK": "K"},
    "none_failed": {"SS": "R", "SF": "U", "SK": "R", "FF": "U", "FK": "U", "KK": "R"},
    "none_failed_min_one_success": {"SS": "R", "SF": "U", "SK": "R", "FF": "U", "FK": "U", "KK": "K"},
    "none_skipped": {"SS": "R", "SF": "R", "SK": "K", "FF": "R", "FK": "K", "KK": "K"},
    "all_skipped": {"SS": "K", "SF": "K", "SK": "K", "FF": "K", "FK": "K", "KK": "R"},
    "always": {"SS": "R", "SF": "R", "SK": "R", "FF": "R", "FK": "R", "KK": "R"},
}
CLEANING = ("all_done", "always")


def end_as(letter: str) -> None:
    """End a task as a letter of the table says."""
    if letter == "F":
        raise ValueError("failed")
    if letter == "K":
        raise tm.Skip("skipped")


def behind_two(rule: str) -> tuple[tm.Workflow, list[str]]:
    """Return a workflow with a task behind two others, which end as its param says, and who called that task."""
    flow = tm.Workflow("two")
    called: list[str] = []

    @flow.task
    async def one(ctx: tm.Context) -> None:
        end_as(ctx["ends"][0])

    @flow.task
    async def other(ctx: tm.Context) -> None:
        end_as(ctx["ends"][1])

    @flow.task(after=[one, other], rule=rule)
    async def end(ctx: tm.Context) -> None:
        called.append(ctx["ends"])

    return flow, called


@pytest.mark.parametrize("rule", TABLE)
async def test_every_rule(store: str | None, rule: str) -> None:
    """leoflow.md 9; cloacina.md 109: a rule that says no skips, and the body is not called."""
    flow, called = behind_two(rule)
    expected = TABLE[rule]
    async with tm.testing.node(store, load=[flow]) as node:
        results = {ends: await see_through(node, "two", ends=ends) for ends in expected}
        turned = await see_through(node, "two", ends="KF")  # the order does not matter
    assert {ends: states(result)["end"] for ends, result in results.items()} == {
        ends: WORDS[letter] for ends, letter in expected.items()
    }
    assert states(turned)["end"] == WORDS[expected["FK"]]
    assert sorted(set(called) - {"KF"}) == sorted(ends for ends, letter in expected.items() if letter == "R")


@pytest.mark.parametrize("rule", TABLE)
async def test_the_leaves_decide(rule: str) -> None:
    """W-3; api.md, "Outcome of a run"; leoflow.md 14: those that tidy up do not count, those before them do."""
    flow, _ = behind_two(rule)
    async with tm.testing.node(load=[flow]) as node:
        for ends, letter in TABLE[rule].items():
            result = await see_through(node, "two", ends=ends)
            has_failed = "F" in ends if rule in CLEANING else letter == "U"
            assert result.state is (tm.RunState.FAILED if has_failed else tm.RunState.SUCCESS), ends
            assert result.ok is not has_failed


@pytest.mark.parametrize(
    ("rule", "ends"), [("one_success", "S"), ("one_failed", "F"), ("one_done", "S"), ("one_done", "F"), ("always", "S")]
)
async def test_rules_that_do_not_wait(store: str | None, rule: str, ends: str) -> None:
    """leoflow.md 10: they fire while the other one still runs."""
    flow = tm.Workflow("early")
    gate = Gate()

    @flow.task
    async def quick() -> None:
        end_as(ends)

    @flow.task
    async def slow() -> None:
        await gate.pass_through()

    @flow.task(after=[quick, slow], rule=rule)
    async def end() -> None: ...

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("early")
        await node.advance("1s")
        now = states(await run.state())
        assert (now["slow"], now["end"]) == ("running", "success")
        gate.is_open.set()
        await node.settle()
        assert (await run.state()).state.is_terminal


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        ("all_done", "F"),
        ("none_failed", "S"),
        ("none_failed_min_one_success", "S"),
        ("none_skipped", "F"),
        ("all_success", "S"),
        ("all_failed", "F"),
        ("all_skipped", "K"),
        ("one_success", "F"),
        ("one_failed", "S"),
        ("one_done", "K"),
    ],
)
async def test_rules_that_wait(rule: str, ends: str) -> None:
    """leoflow.md 9: while the other one could still change the answer."""
    flow = tm.Workflow("late")
    gate = Gate()

    @flow.task
    async def quick() -> None:
        end_as(ends)

    @flow.task
    async def slow() -> None:
        await gate.pass_through()

    @flow.task(after=[quick, slow], rule=rule)
    async def end() -> None: ...

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("late")
        await node.advance("10s")
        assert states(await run.state())["end"] == "none"
        gate.is_open.set()
        await node.settle()
        assert (await run.state()).tasks["end"].state.is_terminal


async def test_always_does_not_wait_for_anybody(store: str | None) -> None:
    """workflows.md, "Tasks", always."""
    flow = tm.Workflow("at_once")
    gate = Gate()

    @flow.task
    async def slow() -> int:
        await gate.pass_through()
        return 1

    @flow.task(rule="always")
    async def watch(slow: int | None) -> str:
        return f"saw {slow}"

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("at_once")
        await node.advance("1s")
        assert (await run.state()).outputs == {"watch": "saw None"}
        gate.is_open.set()


async def test_a_failure_that_is_tried_again_is_none_yet(store: str | None) -> None:
    """cloacina.md 110, leoflow.md 12: rules are asked after the last try."""
    flow = tm.Workflow("patient")
    alarms: list[int] = []
    tries: list[int] = []

    @flow.task(retry=tm.Retry(2, delay="10s", backoff=1.0))
    async def bad() -> None:
        tries.append(1)
        raise ValueError("no")

    @flow.task(after=[bad], rule="one_failed")
    async def alarm() -> None:
        alarms.append(len(tries))

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("patient")
        await node.advance("15s")
        now = await run.state()
        assert states(now) == {"bad": "up_for_retry", "alarm": "none"}
        assert now.state is tm.RunState.RUNNING
        await node.advance("10s")
        result = await run.state()
    assert alarms == [3]
    assert result.ok  # handled: the leaf succeeded


async def test_cleaning_up_hides_nothing(store: str | None) -> None:
    """api.md: what was cleaned up after a failure is still a failure; after a success, a success."""
    flow = tm.Workflow("tidy")
    tidied: list[bool] = []

    @flow.task
    async def work(ctx: tm.Context) -> None:
        end_as(ctx["ends"])

    @flow.task(after=[work])
    async def publish() -> None: ...

    @flow.task(after=[publish], rule="all_done")
    async def tidy(ctx: tm.Context) -> None:
        tidied.append(True)
        end_as(ctx["tidy_ends"])

    async with tm.testing.node(store, load=[flow]) as node:
        failed = await see_through(node, "tidy", ends="F", tidy_ends="S")
        passed = await see_through(node, "tidy", ends="S", tidy_ends="S")
        untidy = await see_through(node, "tidy", ends="S", tidy_ends="F")
    assert states(failed) == {"work": "failed", "publish": "upstream_failed", "tidy": "success"}
    assert (str(failed.state), str(passed.state)) == ("failed", "success")
    assert str(untidy.state) == "success"  # it does not count as a leaf, its upstreams do
    assert len(tidied) == 3


async def test_a_handled_failure_is_a_success(store: str | None) -> None:
    """api.md: the leaf that handles it decides."""
    flow = tm.Workflow("handled")

    @flow.task
    async def work() -> int:
        raise ValueError("no")

    @flow.task(rule="one_failed")
    async def report(work: int | None) -> str:
        return f"got {work}"

    @flow.task
    async def publish(report: str) -> str:
        return report

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "handled")
    assert result.ok
    assert result.outputs == {"report": "got None", "publish": "got None"}
    assert result.raise_for_status() is result


async def test_a_cleaner_behind_a_cleaner(store: str | None) -> None:
    """api.md: tasks with all_done or always do not count, however many there are in a row."""
    flow = tm.Workflow("cleaners")

    @flow.task
    async def work() -> None:
        raise ValueError("no")

    @flow.task(after=[work], rule="all_done")
    async def tidy() -> None: ...

    @flow.task(after=[tidy], rule="always")
    async def tell() -> None: ...

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "cleaners")
    assert states(result) == {"work": "failed", "tidy": "success", "tell": "success"}
    assert result.state is tm.RunState.FAILED


async def test_default_rules_follow_the_annotations() -> None:
    """W-4: all data optional is none_failed, all required all_success, else each as annotated; a rule is a rule."""
    flow = tm.Workflow("defaults")

    @flow.task
    async def gone() -> int:
        raise tm.Skip("gone")

    @flow.task
    async def here() -> int:
        return 1

    @flow.task
    async def lax(gone: int | None, here: int | None) -> list[int | None]:
        return [gone, here]

    @flow.task
    async def mixed(gone: int | None, here: int) -> list[int | None]:
        return [gone, here]

    @flow.task
    async def strict(gone: int, here: int) -> list[int]:
        return [gone, here]

    @flow.task(rule="all_success")
    async def ruled(gone: int | None, here: int) -> list[int | None]:
        return [gone, here]

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "defaults")
    assert result.outputs == {"here": 1, "lax": [None, 1], "mixed": [None, 1]}
    assert result.tasks["strict"].state is result.tasks["ruled"].state is tm.TaskState.SKIPPED


class Left(tm.Boundary):
    number: int


class Right(tm.Boundary):
    number: int


@pytest.mark.parametrize(
    ("ends", "state", "said"),
    [
        ("S", "success", ""),
        ("F", "upstream_failed", "because of 's'"),
        ("K", "skipped", "because of 's'"),
    ],
)
async def test_a_join_without_a_rule_does_what_its_annotations_say(
    store: str | None, ends: str, state: str, said: str
) -> None:
    """W-4: what is optional may be skipped, what is required must have succeeded; the reason names the latter only."""
    flow = tm.Workflow("join")

    @flow.task
    async def d() -> Left | Right:
        return Left(1)

    @flow.task
    async def x(d: Left) -> int:
        return d.number

    @flow.task
    async def y(d: Right) -> int:
        return d.number

    @flow.task
    async def s() -> int:
        end_as(ends)
        return 3

    @flow.task
    async def j(x: int | None, y: int | None, s: int, d: Right | None) -> list[int | None]:
        return [x, y, s, d and d.number]

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "join")
        assert (str(result.tasks["j"].state), result.tasks["j"].reason or "") == (state, said)
        assert result.outputs.get("j") == ([1, None, 3, None] if ends == "S" else None)
