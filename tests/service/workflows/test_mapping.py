"""`each=`: one task run per element of a list, and the list of what they return."""

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, see_through, states


class Row(tm.Boundary):
    number: int


def mapped(**options: object) -> tuple[tm.Workflow, list[int]]:
    """Return a workflow that doubles the numbers of its param `size`, and those it has worked on."""
    flow = tm.Workflow("mapped")
    worked: list[int] = []

    @flow.task
    async def rows(ctx: tm.Context) -> list[Row]:
        return [Row(number=number) for number in range(ctx["size"])]

    @flow.task(each="rows", **options)
    async def double(rows: Row, ctx: tm.Context) -> int:
        worked.append(rows.number)
        if rows.number in ctx["bad"]:
            raise ValueError(f"number {rows.number}")
        return 2 * rows.number

    @flow.task
    async def total(double: list[int]) -> int:
        return sum(double)

    return flow, worked


@pytest.mark.parametrize("size", [1, 5, 200])
async def test_one_task_run_per_element(store: str | None, size: int) -> None:
    """api.md: what consumes it gets the list, in the order of the elements."""
    flow, worked = mapped()
    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "mapped", size=size, bad=[])
    assert sorted(worked) == list(range(size))
    assert result.outputs["double"] == [2 * number for number in range(size)]
    assert result.outputs["total"] == size * (size - 1)
    elements = result.tasks["double"].mapped
    assert [one.output for one in elements] == result.outputs["double"]
    assert {(str(one.state), one.attempts) for one in elements} == {("success", 1)}


async def test_an_empty_list_is_a_success(store: str | None) -> None:
    """api.md: with [], and no body is called."""
    flow, worked = mapped()
    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "mapped", size=0, bad=[])
        again = await see_through(await node.crash(), "mapped", size=0, bad=[])
    assert worked == []
    assert states(result) == {"rows": "success", "double": "success", "total": "success"}
    assert result.outputs == again.outputs == {"rows": [], "double": [], "total": 0}
    assert result.tasks["double"].mapped == []


async def test_mapped_over_mapped(store: str | None) -> None:
    """api.md: the list of a mapped task may be mapped over again."""
    flow = tm.Workflow("twice")

    @flow.task
    async def numbers(ctx: tm.Context) -> list[int]:
        return list(range(ctx["size"]))

    @flow.task(each=numbers)
    async def one_more(numbers: int) -> int:
        return numbers + 1

    @flow.task(each=one_more)
    async def text(one_more: int) -> str:
        return str(one_more)

    @flow.task
    async def joined(text: list[str], numbers: list[int]) -> str:
        return ",".join(text) + f" of {len(numbers)}"

    async with tm.testing.node(store, load=[flow]) as node:
        assert (await see_through(node, "twice", size=3)).outputs["joined"] == "1,2,3 of 3"
        assert (await see_through(node, "twice", size=0)).outputs["joined"] == " of 0"


async def test_each_element_gets_the_whole_of_the_others() -> None:
    """api.md: only what `each` names is taken apart."""
    flow = tm.Workflow("both")

    @flow.task
    async def items() -> tuple[int, ...]:
        return 1, 2

    @flow.task
    async def factors() -> list[int]:
        return [10, 100]

    @flow.task(each="items")
    async def product(items: int, factors: list[int]) -> list[int]:
        return [items * factor for factor in factors]

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "both")
    assert result.outputs["product"] == [[10, 100], [20, 200]]


async def test_a_failing_element_fails_the_task(store: str | None) -> None:
    """api.md; TaskResult: the others finish, what consumes the list is upstream_failed."""
    flow, worked = mapped()
    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "mapped", size=4, bad=[2])
    assert sorted(worked) == [0, 1, 2, 3]
    assert states(result) == {"rows": "success", "double": "failed", "total": "upstream_failed"}
    assert [str(one.state) for one in result.tasks["double"].mapped] == ["success", "success", "failed", "success"]
    assert result.tasks["double"].output == [0, 2, 6]
    assert result.tasks["double"].error == result.tasks["double"].mapped[2].error
    with pytest.raises(tm.OperationError, match=r"task 'double' failed \(element 2\): ValueError: number 2"):
        result.raise_for_status()


async def test_one_element_is_retried_alone(store: str | None) -> None:
    """leoflow.md 7: the element's own attempts; the others are not run again."""
    flow, worked = mapped(retry=tm.Retry(2, delay="10s", backoff=1.0))
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("mapped", size=3, bad=[1])
        await node.advance("25s")
        result = await run.state()
    assert sorted(worked) == [0, 1, 1, 1, 2]
    assert [one.attempts for one in result.tasks["double"].mapped] == [1, 3, 1]
    assert result.tasks["double"].attempts == 3


async def test_only_failed_elements_rerun(store: str | None) -> None:
    """api.md, `run.retry()`: what succeeded is kept, and the list is whole afterwards."""
    flow = tm.Workflow("repaired")
    worked: list[int] = []
    bad = {1, 3}

    @flow.task
    async def numbers() -> list[int]:
        return [0, 1, 2, 3]

    @flow.task(each=numbers)
    async def work(numbers: int) -> int:
        worked.append(numbers)
        if numbers in bad:
            raise ValueError("bad")
        return numbers

    @flow.task
    async def collect(work: list[int]) -> list[int]:
        return work

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("repaired")
        await node.settle()
        bad.clear()
        worked.clear()
        assert (await run.retry()).reruns == ["work", "collect"]
        await node.settle()
        result = await run.state()
    assert sorted(worked) == [1, 3]
    assert result.outputs["collect"] == [0, 1, 2, 3]
    assert [one.attempts for one in result.tasks["work"].mapped] == [1, 2, 1, 2]


async def test_a_skipped_element_is_not_in_the_list() -> None:
    """api.md, tm.Skip: of one element; the rest succeeded, so the task did."""
    flow = tm.Workflow("some")

    @flow.task
    async def numbers() -> list[int]:
        return [1, 2, 3]

    @flow.task(each=numbers)
    async def odd(numbers: int) -> int:
        if numbers % 2 == 0:
            raise tm.Skip("even")
        return numbers

    @flow.task
    async def collect(odd: list[int]) -> list[int]:
        return odd

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "some")
    assert [str(one.state) for one in result.tasks["odd"].mapped] == ["success", "skipped", "success"]
    assert result.outputs["collect"] == [1, 3]


async def test_mapping_over_what_was_skipped_is_skipped() -> None:
    """api.md: untaken branches and all behind them."""
    flow = tm.Workflow("never")

    @flow.task
    async def numbers() -> list[int]:
        raise tm.Skip("none")

    @flow.task(each=numbers)
    async def work(numbers: int) -> int:
        return numbers

    @flow.task
    async def collect(work: list[int]) -> int:
        return len(work)

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "never")
    assert states(result) == {"numbers": "skipped", "work": "skipped", "collect": "skipped"}
    assert result.ok


class Even(tm.Boundary):
    number: int


class Odd(tm.Boundary):
    number: int


def sorting() -> tm.Workflow:
    """Return a workflow that sorts the numbers in its param, and takes the even and the odd ones different ways."""
    flow = tm.Workflow("sorting")

    @flow.task
    async def numbers(ctx: tm.Context) -> list[int]:
        return ctx["numbers"]

    @flow.task(each=numbers)
    async def sort(numbers: int) -> Even | Odd:
        if numbers < 0:
            raise tm.Skip("no number to count with")
        return Odd(number=numbers) if numbers % 2 else Even(number=numbers)

    @flow.task(each=sort)
    async def even(sort: Even) -> int:
        return sort.number

    @flow.task(each=sort)
    async def odd(sort: Odd) -> int:
        return sort.number

    @flow.task
    async def both(even: list[int] | None, odd: list[int] | None) -> tuple[list[int] | None, list[int] | None]:
        return even, odd

    return flow


@pytest.mark.parametrize(
    ("numbers", "even", "odd"),
    [([1, 2, 3, -1, 4], [2, 4], [1, 3]), ([3, -1], None, [3]), ([2], [2], None), ([], [], []), ([-1], None, None)],
)
async def test_elements_go_different_ways(
    store: str | None, numbers: list[int], even: list[int] | None, odd: list[int] | None
) -> None:
    """api.md: a union return type routes; a branch that no element takes is skipped, and None for those behind it."""
    async with tm.testing.node(store, load=[sorting()]) as node:
        result = await see_through(node, "sorting", numbers=numbers)
        again = await (await node.crash()).run_handle(result.id).state()
    assert result.ok
    assert [result.outputs.get("even"), result.outputs.get("odd")] == [even, odd]
    assert result.outputs.get("both", (None, None)) == (even, odd)
    assert again.outputs == result.outputs


async def test_a_value_that_is_no_list_takes_another_branch() -> None:
    """api.md: untaken branches are skipped, also one that would be mapped."""
    flow = tm.Workflow("either")

    @flow.task
    async def choose(ctx: tm.Context) -> Even | list[int]:
        return [1, 2] if ctx["many"] else Even(number=2)

    @flow.task(each=choose)
    async def work(choose: int) -> int:
        return choose

    @flow.task
    async def alone(choose: Even) -> int:
        return choose.number

    async with tm.testing.node(load=[flow]) as node:
        one = await see_through(node, "either", many=False)
        many = await see_through(node, "either", many=True)
    assert states(one) == {"choose": "success", "work": "skipped", "alone": "success"}
    assert states(many) == {"choose": "success", "work": "success", "alone": "skipped"}
    assert (one.ok, many.ok, many.outputs["work"]) == (True, True, [1, 2])


@pytest.mark.parametrize(("error", "rule"), [(tm.Skip("none"), None), (ValueError("none"), "all_done")])
async def test_who_takes_a_mapping_that_never_was_gets_none_or_the_default(
    store: str | None, error: Exception, rule: str | None
) -> None:
    """docs, Rules: as of a task that is not mapped."""
    flow = tm.Workflow("never")

    @flow.task
    async def numbers() -> list[int]:
        raise error

    @flow.task(each=numbers)
    async def work(numbers: int) -> int:
        return numbers

    @flow.task(rule=rule)
    async def collect(work: list[int] | None, numbers: list[int] | None) -> str:
        return f"{work} {numbers}"

    @flow.task(rule=rule)
    async def default(work: list[int] = [7]) -> list[int]:  # noqa: B006
        return work

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "never")
    assert (result.outputs["collect"], result.outputs["default"]) == ("None None", [7])


async def test_mapping_over_what_failed_is_upstream_failed() -> None:
    """cloacina.md 108, for a mapped task."""
    flow = tm.Workflow("never")

    @flow.task
    async def numbers() -> list[int]:
        raise ValueError("none")

    @flow.task(each=numbers)
    async def work(numbers: int) -> int:
        return numbers

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "never")
    assert states(result) == {"numbers": "failed", "work": "upstream_failed"}


async def test_the_list_changes_its_length_when_it_is_made_again(store: str | None) -> None:
    """leoflow.md 8: clearing the list clears its elements, also removed ones; attempts keep counting."""
    flow = tm.Workflow("lengths")
    sizes = [4, 2, 5]
    attempts: list[int] = []

    @flow.task
    async def numbers() -> list[int]:
        return list(range(sizes.pop(0)))

    @flow.task(each=numbers)
    async def work(numbers: int, ctx: tm.Context) -> int:
        attempts.append(ctx.attempt)
        return numbers

    @flow.task
    async def count(work: list[int]) -> int:
        return len(work)

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("lengths")
        await node.settle()
        found = [(await run.state()).outputs["count"]]
        for _ in range(2):
            assert (await run.retry(from_="numbers")).reruns == ["numbers", "work", "count"]
            await node.settle()
            result = await run.state()
            found.append(result.outputs["count"])
    assert found == [4, 2, 5]
    assert result.outputs["work"] == [0, 1, 2, 3, 4]
    assert attempts == [1] * 4 + [2] * 2 + [3] * 5


async def test_elements_survive_a_crash(store: str | None) -> None:
    """cloacina.md 117: those that ended are not run again, the others are."""
    flow = tm.Workflow("crashed")
    gate = Gate()
    worked: list[int] = []

    @flow.task
    async def numbers() -> list[int]:
        return list(range(6))

    @flow.task(each=numbers)
    async def work(numbers: int) -> int:
        worked.append(numbers)
        if numbers >= 3:
            await gate.pass_through()
        return numbers

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("crashed")
        await node.advance("1s")
        assert sorted(worked) == list(range(6))
        node = await node.crash()
        gate.is_open.set()
        await node.settle()
        result = await node.run_handle(run.id).state()
    assert sorted(worked) == [0, 1, 2, 3, 3, 4, 4, 5, 5]
    assert result.outputs["work"] == list(range(6))
    assert [one.attempts for one in result.tasks["work"].mapped] == [1, 1, 1, 2, 2, 2]


async def test_a_value_that_is_no_list_fails_the_task_that_returned_it() -> None:
    """api.md, check(): what is mapped over must be a list; at run time the annotation is checked."""
    flow = tm.Workflow("untrue")

    @flow.task
    async def numbers() -> list[int]:
        return {"not": "a list"}

    @flow.task(each=numbers)
    async def work(numbers: int) -> int:
        return numbers

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "untrue")
    assert states(result) == {"numbers": "failed", "work": "upstream_failed"}
    assert "declares list[int]" in str(result.tasks["numbers"].error)
