"""Values that tasks return: stored as annotated, and never shared."""

import gc
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, see_through, states


class Side(Enum):
    BUY = "buy"


class Level(IntEnum):
    HIGH = 3


class Price(tm.Boundary):
    value: float
    at: datetime
    side: Side | None = None


class Left(tm.Boundary):
    number: int


class Right(tm.Boundary):
    number: int


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

KINDS: list[tuple[Any, Any]] = [
    (int, 2**60),
    (int, -1),
    (float, 1.5),
    (float, float("inf")),
    (str, "Grüße, 世界 🌊"),
    (str, ""),
    (bool, False),
    (bytes, b"\x00\xff"),
    (None, None),
    (date, date(2026, 2, 28)),
    (datetime, NOON),
    (time, time(6, 30)),
    (timedelta, timedelta(days=1, microseconds=3)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Side, Side.BUY),
    (Level, Level.HIGH),
    (Price, Price(value=1.0, at=NOON, side=Side.BUY)),
    (Price | None, None),
    (Left | Right, Right(number=1)),
    (list[Price], [Price(value=1.0, at=NOON)]),
    (list[int | None], [1, None]),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (dict[str, list[date]], {"days": [date(2026, 1, 1)]}),
    (dict[int, str], {1: "a"}),
    (list[dict[str, Price]], [{"a": Price(value=0.0, at=NOON)}]),
]


def typed(annotation: Any, value: Any) -> tuple[tm.Workflow, list[Any]]:
    """Return a workflow with a value of this annotation, and what the task behind got."""
    flow = tm.Workflow("typed")
    got: list[Any] = []

    async def give() -> Any:
        return value

    async def take(give: Any) -> None:
        got.append(give)

    give.__annotations__["return"] = annotation
    take.__annotations__["give"] = annotation
    flow.task(give)
    flow.task(take)
    return flow, got


@pytest.mark.parametrize(
    ("annotation", "value"), KINDS, ids=[f"{kind}-{number}" for number, (kind, _) in enumerate(KINDS)]
)
async def test_a_value_arrives_as_it_was(annotation: Any, value: Any) -> None:
    """api.md: its annotation says what it is; RunResult.outputs has the same."""
    flow, got = typed(annotation, value)
    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "typed")
    assert states(result) == {"give": "success", "take": "success"}
    assert got == [value]
    assert type(got[0]) is type(value)
    assert result.outputs["give"] == value
    assert type(result.outputs["give"]) is type(value)


async def test_every_kind_outlives_a_crash(sqlite: str) -> None:
    """leoflow.md 5: the values after a crash are those without one."""
    flows = []
    for number, (annotation, value) in enumerate(KINDS):
        flow, _ = typed(annotation, value)
        flow.name = f"typed_{number}"
        flows.append(flow)
    async with tm.testing.node(sqlite, load=flows) as node:
        runs = [await node.start(flow.name) for flow in flows]
        await node.settle()
        before = [await run.state() for run in runs]
        node = await node.crash()
        after = [await node.run_handle(run.id).state() for run in runs]
    assert after == before
    assert [result.outputs["give"] for result in after] == [value for _, value in KINDS]


async def test_a_run_that_a_crash_interrupts_ends_with_the_same_values(store: str | None) -> None:
    """leoflow.md 55, cloacina.md 117: what was done is not done again."""
    gates = [Gate(), Gate()]
    gates[1].is_open.set()
    ends = []
    for gate in gates:
        flow = tm.Workflow("interrupted")
        calls: list[str] = []

        @flow.task
        async def first() -> Price:
            calls.append("first")  # noqa: B023
            return Price(value=1.5, at=NOON)

        @flow.task
        async def second(first: Price) -> dict[str, Price]:
            calls.append("second")  # noqa: B023
            await gate.pass_through()  # noqa: B023
            return {"a": first}

        @flow.task
        async def third(second: dict[str, Price], first: Price) -> list[Price]:
            return [second["a"], first]

        async with tm.testing.node(None if store is None else f"{store}{len(ends)}", load=[flow]) as node:
            run = await node.start("interrupted")
            await node.advance("1s")
            if not gate.is_open.is_set():
                node = await node.crash()
                gate.is_open.set()
            await node.settle()
            result = await node.run_handle(run.id).state()
        assert calls.count("first") == 1
        ends.append((result.outputs, result.state, states(result)))
    assert ends[0] == ends[1]


async def test_tasks_never_share_a_value(store: str | None) -> None:
    """api.md, Values: changes that one task makes to its list are visible to no other."""
    flow = tm.Workflow("mine")
    kept: list[list[int]] = []

    @flow.task
    async def numbers() -> list[int]:
        made = [1, 2, 3]
        kept.append(made)
        return made

    @flow.task
    async def spoil(numbers: list[int]) -> None:
        numbers.clear()
        kept[0].append(4)

    @flow.task(after=[spoil])
    async def look(numbers: list[int]) -> list[int]:
        numbers.append(9)
        return numbers

    @flow.task(after=[look])
    async def look_again(numbers: list[int]) -> list[int]:
        return numbers

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("mine")
        await node.settle()
        result = await run.state()
        assert result.outputs["look"] == [1, 2, 3, 9]
        assert result.outputs["look_again"] == [1, 2, 3]
        result.outputs["numbers"].clear()
        assert (await run.state()).outputs["numbers"] == [1, 2, 3]


async def test_a_large_value(store: str | None) -> None:
    """api.md: large results go to the value store; they come back whole."""
    flow = tm.Workflow("large")

    @flow.task
    async def give() -> bytes:
        return bytes(range(256)) * 20_000

    @flow.task
    async def take(give: bytes) -> int:
        return len(give)

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "large")
        assert result.outputs["take"] == 5_120_000
        assert result.outputs["give"] == bytes(range(256)) * 20_000


class Handle:
    """Something that only lives in memory."""


@pytest.mark.parametrize("annotation", [Any, object, list[Any]])
async def test_a_value_that_cannot_be_stored_fails_its_task(store: str | None, annotation: Any) -> None:
    """api.md, errors: the task that returned it, once, and the message says what to do."""
    flow = tm.Workflow("handles")
    tries: list[int] = []

    async def give() -> Any:
        tries.append(1)
        return [Handle()] if annotation == list[Any] else Handle()

    give.__annotations__["return"] = annotation
    flow.task(retry=tm.Retry(3, delay="1s"))(give)
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("handles")
        await node.advance("1m")
        result = await run.state()
    assert states(result) == {"give": "failed"}
    assert len(tries) == 1
    assert "task 'give' returned a value that cannot be stored" in str(result.tasks["give"].error)


async def test_a_value_against_its_annotation_fails_its_task() -> None:
    """api.md: the return annotation says where it can go."""
    flow, got = typed(dict[str, int], {"a": "text"})
    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "typed")
    assert states(result) == {"give": "failed", "take": "upstream_failed"}
    assert got == []


async def test_without_annotations_plain_values_do() -> None:
    """api.md, corners: unannotated is Any."""
    flow = tm.Workflow("plain")

    @flow.task
    async def give():
        return {"a": [1, 2.5, "x", None]}

    @flow.task
    async def take(give):
        return give["a"]

    async with tm.testing.node(load=[flow]) as node:
        assert (await see_through(node, "plain")).outputs["take"] == [1, 2.5, "x", None]


async def test_the_result_itself(store: str | None) -> None:
    """api.md, "Values that come back": every field of a RunResult and its TaskResults."""
    flow = tm.Workflow("whole")

    @flow.task
    async def good() -> int:
        return 1

    @flow.task
    async def bad() -> int:
        raise ValueError("no")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("whole")
        result = await run.wait(5)
        now = node.clock.now()
    assert (result.id, result.workflow, result.state) == (run.id, "whole", tm.RunState.FAILED)
    assert result.created_at == result.started_at == result.ended_at == now
    assert result.outputs == {"good": 1}
    one, other = result.tasks["good"], result.tasks["bad"]
    assert (one.state, one.attempts, one.output, one.error) == (tm.TaskState.SUCCESS, 1, 1, None)
    assert (one.started_at, one.ended_at, one.mapped) == (now, now, [])
    assert (other.state, other.attempts, other.output) == (tm.TaskState.FAILED, 1, None)
    assert other.error is not None
    assert (other.error.type, other.error.message) == ("ValueError", "no")
    assert "test_values.py" in other.error.traceback
    with pytest.raises(
        tm.OperationError, match=r"run \S+ of workflow 'whole' failed: task 'bad' failed: ValueError: no"
    ):
        result.raise_for_status()


async def test_a_run_that_has_not_ended_has_no_status() -> None:
    """api.md, raise_for_status: it says so."""
    flow = tm.Workflow("open")
    gate = Gate()

    @flow.task
    async def work() -> None:
        await gate.pass_through()

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("open")
        await node.advance("1s")
        with pytest.raises(tm.OperationError, match="has not ended: it is running"):
            (await run.state()).raise_for_status()
        gate.is_open.set()


@pytest.mark.parametrize("annotation", [Any, int])
@pytest.mark.filterwarnings("error")
async def test_a_coroutine_that_was_not_awaited_is_reported(annotation: Any) -> None:
    """api.md: the commonest slip of all gets a sentence of its own, and no warning from Python."""

    async def fetch() -> int:
        return 1

    def give() -> Any:
        return fetch()

    give.__annotations__["return"] = annotation
    flow = tm.Workflow("forgetful")
    flow.task(give)
    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "forgetful")
    assert "task 'give' returned a coroutine that was not awaited" in str(result.tasks["give"].error)
    gc.collect()


async def test_a_moment_comes_back_in_utc() -> None:
    """docs, Workflows: the moment is kept, its zone is not."""
    noon = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    flow, got = typed(datetime, noon)
    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "typed")
    assert result.outputs["give"] == noon
    assert result.outputs["give"].utcoffset() == timedelta(0)
    assert got
