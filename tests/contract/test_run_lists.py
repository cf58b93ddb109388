"""Lists of runs: filters, text search, the true total, and pages that hold every run once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.run_samples import after, creation, make, run_of, run_row, task_row
from tests.contract.samples import NOON, NOON_ELSEWHERE
from tests.postgres import PostgresServer
from tidemill.kernel.limits import LISTED_VALUE_LIMIT
from tidemill.storage.postgres.store import PostgresStore
from tidemill.storage.run_lists import RunPosition, RunQuery, TaskStateCount
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.storage.sqlite.store import SqliteStore
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import RunNote
from tidemill.workflows.change import Change
from tidemill.workflows.records import RunRow, TaskKey
from tidemill.workflows.states import RunState, TaskState


async def listed(store: Store, **wanted: Any) -> tuple[str, int]:
    """Return the last characters of the ids on a page, and the total."""
    page = await store.runs.list_page(RunQuery(**({"tenant": "public"} | wanted)))
    return "".join(row.id[-1] for row in page.runs), page.total


async def test_runs_are_found_by_the_firing_or_the_run_that_started_them(store: Store) -> None:
    """Those that a person started are not: an actor has any number of them."""
    causes = {"r1": ("firing", "f1"), "r2": ("firing", "f1"), "r3": ("task", "r1"), "r4": ("manual", "f1")}
    for number, (name, (origin, by)) in enumerate(causes.items()):
        await make(store, creation(run_row(name, origin=origin, caused_by=by, created_at=after(number))))
    await make(store, creation(run_row("x9", tenant="other", origin="firing", caused_by="f1")))
    assert await listed(store, started_by="f1") == ("21", 2)
    assert await listed(store, started_by="r1") == ("3", 1)
    assert await store.runs.list_started_by("public", ["f1", "r1", "f2"]) == [("f1", "r1"), ("f1", "r2"), ("r1", "r3")]


async def test_a_list_leaves_out_large_params(store: Store) -> None:
    sizes = {"r1": LISTED_VALUE_LIMIT, "r2": LISTED_VALUE_LIMIT + 1}
    for name, size in sizes.items():
        await make(store, creation(run_row(name, params=b"x" * size)))
    page = await store.runs.list_page(RunQuery(tenant="public"))
    assert {row.id: len(row.params) for row in page.runs} == {"r1": LISTED_VALUE_LIMIT, "r2": 0}
    assert page.large_params == {"r2": LISTED_VALUE_LIMIT + 1}


async def test_runs_are_listed_newest_first_with_the_total(store: Store) -> None:
    """http.md, lists: runs of one instant are in the order of their ids."""
    assert await listed(store) == ("", 0)
    for number, at in enumerate([5, 3, 3, 9]):
        await make(store, creation(run_row(f"r{number}", created_at=after(at))))
    await make(store, creation(run_row("x9", tenant="other")))
    assert await listed(store) == ("3021", 4)
    assert await listed(store, limit=2) == ("30", 4)
    assert await listed(store, limit=2, after=RunPosition(after(5), "r0")) == ("21", 4)
    assert await listed(store, limit=2, after=RunPosition(after(3), "r2")) == ("1", 4)
    assert await listed(store, after=RunPosition(after(3), "r1")) == ("", 4)


async def test_lists_are_filtered_by_workflow_state_and_time(store: Store) -> None:
    """The times are inclusive, and of any zone; the total counts what matches."""
    states = [RunState.QUEUED, RunState.SUCCESS, RunState.FAILED, RunState.RUNNING, RunState.SUCCESS]
    for number, state in enumerate(states):
        row = run_row(f"r{number}", workflow=f"w{number % 2}", state=state, created_at=after(number))
        await make(store, creation(row))
    assert await listed(store, workflows=["w1"]) == ("31", 2)
    assert await listed(store, workflows=["w9"]) == ("", 0)
    assert await listed(store, workflows=[]) == ("", 0)
    assert await listed(store, workflows={"w0", "w1", "w9"}) == ("43210", 5)
    assert await listed(store, states=[RunState.SUCCESS]) == ("41", 2)
    assert await listed(store, states=[RunState.QUEUED, RunState.RUNNING]) == ("30", 2)
    assert await listed(store, states=[RunState.QUEUED, RunState.FAILED], limit=1) == ("2", 2)
    assert await listed(store, workflows=["w0"], states={RunState.SUCCESS, RunState.QUEUED}) == ("40", 2)
    assert await listed(store, workflows=["w1"], states=[RunState.RUNNING]) == ("3", 1)
    assert await listed(store, since=after(1), until=after(3)) == ("321", 3)
    assert await listed(store, until=NOON_ELSEWHERE) == ("0", 1)
    assert await listed(store, since=after(1), until=after(3), limit=1, after=RunPosition(after(3), "r3")) == ("2", 3)
    assert await listed(store, since=after(2), until=after(1)) == ("", 0)


async def test_lists_are_filtered_by_what_started_a_run_and_what_it_is_about(store: Store) -> None:
    """By the kind of what started it or its name, by its key or its backfill; the total counts what matches."""
    facts: list[dict[str, Any]] = [
        {"origin": "trigger", "cause": "new_files"},
        {"origin": "firing", "cause": "desk", "about": "naïve 'kitchen'"},
        {"origin": "backfill", "about": "nightly", "backfill": "b1"},
        {"origin": "schedule", "about": "nightly"},
        {"origin": "manual"},
    ]
    for number, one in enumerate(facts):
        await make(store, creation(run_row(f"r{number}", created_at=after(number), workflow=f"w{number % 2}", **one)))
    row = (await store.runs.load(["r1"]))[0].run
    assert (row.cause, row.about) == ("desk", "naïve 'kitchen'")
    for wanted, found in [
        ({"cause": "trigger"}, "0"),
        ({"cause": "new_files"}, "0"),
        ({"cause": "desk", "key": "naïve 'kitchen'"}, "1"),
        ({"cause": "backfill"}, "2"),
        ({"key": "nightly"}, "32"),
        ({"key": "nightly", "cause": "schedule"}, "3"),
        ({"key": "nightly", "workflows": ["w0"]}, "2"),
        ({"key": "b1"}, "2"),
        ({"cause": "unknown"}, ""),
        ({"key": "unknown"}, ""),
    ]:
        assert await listed(store, **wanted) == (found, len(found)), wanted
    assert await listed(store, key="nightly", limit=1) == ("3", 2)


async def test_a_list_follows_the_state_of_its_runs(store: Store) -> None:
    await make(store, creation())
    row = await run_of(store)
    await make(store, Change(run="r1", updated_run=replace(row, state=RunState.FAILED, ended_at=after(1))))
    assert await listed(store, states=[RunState.RUNNING]) == ("", 0)
    assert await listed(store, states=[RunState.FAILED]) == ("1", 1)


async def test_lists_are_searched_for_a_text(store: Store) -> None:
    """In id, workflow and note, in letters of either case; in params as written, between bytes of any value."""
    texts = {"r1": {"zero": 0, "day": "Montag", "bytes": b"\x00\xff"}, "r2": {"day": "50%_\\ naïve 名前"}}
    for run, params in texts.items():
        row = run_row(f"Abc-{run}", workflow=f"Flow.{run}", params=msgspec.msgpack.encode(params))
        await make(store, creation(row))
    await store.notes.upsert(RunNote("Abc-r1", None, "Größe: THIRD try", NOON))
    await store.notes.upsert(RunNote("Abc-r2", "a", "about a task only", NOON))
    for text, found in {
        "aBC-": "21",
        "flow.R2": "2",
        "third TRY": "1",
        "größe": "1",
        "Montag": "1",
        "montag": "",
        "naïve 名": "2",
        "%": "2",
        "50%_\\": "2",
        "_": "2",
        "about": "",
        "'; drop table runs--": "",
    }.items():
        assert await listed(store, text=text) == (found, len(found)), text
    assert await listed(store, text="abc", workflows=["Flow.r1"]) == ("1", 1)


async def test_notes_are_read_for_many_runs(store: Store) -> None:
    """Only those about a run itself."""
    await store.notes.upsert(RunNote("r1", None, "naïve 🌊", NOON))
    await store.notes.upsert(RunNote("r2", "a", "of a task", NOON))
    await store.notes.upsert(RunNote("r3", None, "x", NOON))
    assert await store.notes.for_runs(["r1", "r2", "r9"]) == {"r1": "naïve 🌊"}
    assert await store.notes.for_runs([]) == {}


# -- pages against a model


@contextmanager
def opened(kind: str, path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, Store]]:
    """Open a store on a loop of its own."""
    with asyncio.Runner() as runner:
        store: Store = MemoryStore()
        if kind == "sqlite":
            store = SqliteStore(str(path / "tidemill.db"))
        elif kind == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            store = PostgresStore(runner.run(server.fresh_store()))
        runner.run(store.open())
        yield runner, store
        runner.run(store.close())


samples = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["w1", "w2"]), st.sampled_from([RunState.QUEUED, RunState.SUCCESS])),
    max_size=12,
)
queries = st.fixed_dictionaries(
    {
        "workflows": st.sampled_from([None, ["w1"], ["w1", "w2"], []]),
        "states": st.sampled_from([(), (RunState.SUCCESS,), (RunState.QUEUED,)]),
        "since": st.sampled_from([after(0), after(1)]),
        "until": st.sampled_from([after(2), after(99)]),
        "limit": st.integers(1, 5),
    }
)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_pages_hold_every_run_once_while_others_are_created(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """http.md: cursors survive inserts, no item twice, none missed."""
    tenants = count()

    with opened(kind, tmp_path, request) as (runner, store):

        @settings(max_examples=40, deadline=None, database=None)
        @given(samples, samples, queries)
        def check(before: list[Any], meanwhile: list[Any], wanted: dict[str, Any]) -> None:
            runner.run(check_pages(store, f"t{next(tenants)}", before, meanwhile, wanted))

        check()


async def check_pages(
    store: Store, tenant: str, before: list[Any], meanwhile: list[Any], wanted: dict[str, Any]
) -> None:
    """Read a list page by page, and create a run after each page."""
    rows = [row_of(tenant, number, *one) for number, one in enumerate(before)]
    for row in rows:
        await make(store, creation(row))
    query, seen, totals = RunQuery(tenant=tenant, **wanted), list[str](), []
    later = [row_of(tenant, 100 + number, *one) for number, one in enumerate(meanwhile)]
    while True:
        page = await store.runs.list_page(query)
        seen += [row.id for row in page.runs]
        totals.append(page.total - sum(matches(row, query) for row in later[: len(totals)]))
        if len(page.runs) < query.limit:
            break
        query = replace(query, after=RunPosition(page.runs[-1].created_at, page.runs[-1].id))
        for row in later[len(totals) - 1 : len(totals)]:
            await make(store, creation(row))
    newest_first = sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)
    expected = [row.id for row in newest_first if matches(row, query)]
    assert [run for run in seen if run in {row.id for row in rows}] == expected
    assert len(seen) == len(set(seen))
    assert set(totals) == {len(expected)}


def row_of(tenant: str, number: int, at: int, workflow: str, state: RunState) -> RunRow:
    """Return a run; several share an instant."""
    return run_row(f"{tenant}-{number:03}", tenant=tenant, created_at=after(at), workflow=workflow, state=state)


def matches(row: RunRow, query: RunQuery) -> bool:
    """Return whether a list has a run."""
    is_of_workflow = query.workflows is None or row.workflow in query.workflows
    is_selected = is_of_workflow and (not query.states or row.state in query.states)
    return is_selected and query.since <= row.created_at <= query.until


async def test_the_states_of_tasks_are_counted_by_run_and_task(store: Store) -> None:
    """S-8: the grid of runs x tasks; the elements of a mapped task are counted by state."""
    tasks = [
        task_row("b", TaskState.SUCCESS, tries=2, started_at=after(1), ended_at=after(5)),
        task_row("a", TaskState.SUCCESS, index=0, tries=1, started_at=after(3), ended_at=after(4)),
        task_row("a", TaskState.SUCCESS, index=1, tries=3, started_at=after(2), ended_at=after(9)),
        task_row("a", TaskState.RUNNING, index=2, tries=1, started_at=after(2)),
    ]
    await make(store, creation(run_row("r2"), *tasks))
    await make(store, creation(run_row("r1"), task_row("b", TaskState.NONE)))
    assert await store.runs.count_task_states(["r2", "r1", "unknown"]) == [
        TaskStateCount("r1", "b", TaskState.NONE, 1, False, 0, None, None),
        TaskStateCount("r2", "a", TaskState.RUNNING, 1, True, 1, after(2), None),
        TaskStateCount("r2", "a", TaskState.SUCCESS, 2, True, 3, after(2), after(9)),
        TaskStateCount("r2", "b", TaskState.SUCCESS, 1, False, 2, after(1), after(5)),
    ]
    assert await store.runs.count_task_states([]) == []


async def test_a_run_is_found_without_its_tasks(store: Store) -> None:
    """S-9: whether a run has changed does not depend on its size."""
    await make(store, creation(run_row("r1"), task_row("a")))
    assert await store.runs.find_run("r1") == (await store.runs.load(["r1"]))[0].run
    assert await store.runs.find_run("unknown") is None


async def test_a_task_run_is_found_without_the_others(store: Store) -> None:
    """S-9: what a report of one element needs does not depend on the size of its run."""
    rows = [task_row("a"), *(task_row("m", TaskState.FAILED, index=one) for one in range(3))]
    await make(store, creation(run_row("r1"), *rows))
    assert [await store.runs.find_task(TaskKey("r1", row.task, row.index)) for row in rows] == rows
    assert [await store.runs.find_task(TaskKey(*key)) for key in [("r1", "m", 3), ("r1", "b", 0), ("r2", "a")]] == [
        None,
        None,
        None,
    ]


async def test_elements_are_listed_from_one_on_and_by_state(store: Store) -> None:
    """S-9: a page of a mapped task is read without the others."""
    elements = [task_row("m", TaskState.SUCCESS if one % 2 else TaskState.FAILED, index=one) for one in range(12)]
    await make(store, creation(run_row("r1"), *reversed(elements), task_row("other"), task_row("n", index=0)))
    await make(store, creation(run_row("r2"), task_row("m", index=0)))

    async def listed(first: int, *states: TaskState, limit: int = 50, task: str = "m") -> list[int]:
        rows = await store.runs.list_elements(TaskKey("r1", task, first), states, limit)
        assert all(row.task == task for row in rows)
        return [row.index for row in rows]

    assert await store.runs.list_elements(TaskKey("r1", "m", 0), (), 50) == elements
    assert await listed(9) == [9, 10, 11]
    assert await listed(2, limit=3) == [2, 3, 4]
    assert await listed(3, TaskState.FAILED, limit=2) == [4, 6]
    assert await listed(10, TaskState.FAILED, TaskState.SUCCESS) == [10, 11]
    assert await listed(0, TaskState.RUNNING) == await listed(12) == await listed(0, task="unknown") == []
    assert await listed(-1, task="other") == []
