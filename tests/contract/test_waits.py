"""The table of waits: what changes of runs do with it, and who wins where two of them meet."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.run_samples import (
    after,
    creation,
    make,
    move,
    queued,
    run_row,
    running,
    succeeded,
    task_of,
    task_row,
)
from tests.contract.samples import NOON
from tidemill.storage.store import Store
from tidemill.workflows.change import Applied, Change, Refused, TaskChange
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import WAITING_FOR_ANSWER, AttemptKey, TaskKey
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.waits import Answer, WaitChanges, WaitRequest, WaitRow, WaitType, open_wait

KEY = AttemptKey("r1", "a", UNMAPPED, 1)
REF = "a", UNMAPPED
CLAIMED = running(queued(task_row()))
DEFERRED = replace(CLAIMED, state=TaskState.DEFERRED, claimed_by=None, reason=WAITING_FOR_ANSWER)
ANSWER = Answer(
    name="approve", value={"limit": 3}, variant="Approve", by="account:ada", at=after(5), comment="naïve 名前"
)


def wait(id: str = "w1", name: str = "approve", **options: Any) -> WaitRow:
    """Return an open wait of the first task."""
    request = WaitRequest(name=name, call=1, type=WaitType({"anyOf": []}, ("Approve", "Reject")), **options)
    return open_wait(id, "public", "flow", KEY, 1, request, NOON)


def deferring(*waits: WaitRow, seen: int = 0) -> Change:
    """Return the change that defers the task, and opens its waits."""
    return move("r1", CLAIMED, DEFERRED, waits=WaitChanges(opened=waits, seen={REF: seen}, at=NOON))


def waits_at(at: datetime | None = None, **what: Any) -> Change:
    """Return a change of waits alone, a minute later."""
    return Change(run="r1", waits=WaitChanges(at=at or after(60), **what))


def answering(id: str = "w1", answer: Answer = ANSWER, found: Any = DEFERRED) -> Change:
    """Return the change that answers a wait, and wakes the task."""
    woken = replace(found, state=TaskState.SCHEDULED, reason="")
    return Change(run="r1", tasks=[TaskChange(found, woken)], waits=WaitChanges(answered=[(id, answer)], at=answer.at))


@pytest.fixture
async def running_store(store: Store) -> Store:
    """A store with a run whose task is running, in its first attempt."""
    await make(store, creation(run_row(), task_row()), move("r1", task_row(), CLAIMED))
    return store


async def states_of(store: Store) -> list[str]:
    """Return the states of the waits of the run, oldest first."""
    return [one.state for one in await store.waits.of_run("r1")]


async def test_a_deferral_opens_its_waits(running_store: Store) -> None:
    """L-7: in its transaction; read as they were written, and once although they are sent twice."""
    store, full = running_store, wait(text="naïve?", by=("not:starter",), timeout=60.0, default='"x"')
    await make(store, deferring(full, wait("w2", "other")))
    assert list(await store.waits.of_run("r1")) == [full, wait("w2", "other")]
    assert await store.waits.get("w1") == full
    assert full.expires_at == after(60)
    assert list(await store.waits.of_task(TaskKey("r1", "a"))) == [full, wait("w2", "other")]
    await make(store, waits_at(opened=[wait("w3")]))
    assert len(await store.waits.of_run("r1")) == 2


async def test_a_refused_deferral_opens_nothing(running_store: Store) -> None:
    """L-7: both or neither."""
    assert await running_store.runs.apply(
        move("r1", succeeded(CLAIMED), DEFERRED, waits=deferring(wait()).waits)
    ) == Refused("stale")
    assert await states_of(running_store) == []


async def test_of_two_answers_one_wins(running_store: Store) -> None:
    """L-8: open -> answered once, with the task; the other is refused, and has changed nothing."""
    store = running_store
    await make(store, deferring(wait()))
    futures = [store.runs.apply(answering()), store.runs.apply(answering(found=DEFERRED))]
    results = [await one for one in futures]
    assert sorted(isinstance(one, Applied) for one in results) == [False, True]
    assert await store.runs.apply(waits_at(answered=[("w1", ANSWER)])) == Refused("stale")
    assert await store.runs.apply(waits_at(answered=[("missing", ANSWER)])) == Refused("stale")
    (row,) = await store.waits.of_run("r1")
    assert (row.state, row.closed_at, row.answer, row.final_answer) == ("answered", after(5), ANSWER, ANSWER)
    assert (await task_of(store)).state is TaskState.SCHEDULED


async def test_a_refused_change_of_the_task_answers_nothing(running_store: Store) -> None:
    """L-8: in one transaction."""
    await make(running_store, deferring(wait()))
    assert await running_store.runs.apply(answering(found=CLAIMED)) == Refused("stale")
    assert await states_of(running_store) == ["open"]


async def test_waits_expire_when_their_time_has_come(running_store: Store) -> None:
    """L-12: the default is the answer then; moved times count seconds; an answered one does not expire."""
    store = running_store
    first, second = wait(timeout=60.0, default='"x"', default_variant="Approve"), wait("w2", "other", timeout=90.0)
    await make(store, deferring(first, second, wait("w3", "third", timeout=30.0)), waits_at(answered=[("w3", ANSWER)]))
    await make(store, waits_at(moved=timedelta(seconds=10)), waits_at(after(65), expired=[REF]))
    assert await states_of(store) == ["open", "open", "answered"]
    await make(store, waits_at(after(70), expired=[REF]))
    assert await states_of(store) == ["expired", "open", "answered"]
    found = await store.waits.get("w1")
    assert found is not None
    assert found.final_answer == Answer(
        name="approve", value="x", variant="Approve", by="timeout", at=after(70), source="timeout"
    )
    assert await store.runs.apply(waits_at(answered=[("w1", ANSWER)])) == Refused("stale")


async def test_an_answer_before_the_deferral_wakes_the_task_at_once(running_store: Store) -> None:
    """L-8: the attempt knew of fewer ended waits than there are."""
    store = running_store
    await make(store, waits_at(opened=[wait()]), waits_at(answered=[("w1", ANSWER)]))
    result = await store.runs.apply(deferring(wait("w2", "other")))
    assert isinstance(result, Applied)
    assert result.is_overtaken
    assert (await task_of(store)).wake_at == NOON


async def test_a_deferral_that_knows_all_answers_stays(running_store: Store) -> None:
    """L-8."""
    await make(running_store, waits_at(opened=[wait()]), waits_at(answered=[("w1", ANSWER)]))
    result = await running_store.runs.apply(deferring(wait("w2", "other"), seen=1))
    assert isinstance(result, Applied)
    assert not result.is_overtaken
    assert (await task_of(running_store)).wake_at is None


async def test_waits_are_cancelled_and_forgotten(running_store: Store) -> None:
    """L-13: of one task, or of the run; a cleared task sees none of them, and may ask the same again."""
    store = running_store
    await make(store, deferring(wait(), wait("w2", "other")), waits_at(answered=[("w2", ANSWER)]))
    await make(store, waits_at(cancelled=[("b", UNMAPPED)]))
    assert await states_of(store) == ["open", "answered"]
    cancelled = waits_at(cancelled=[REF])
    await make(store, replace(cancelled, forgotten_steps=["a"], is_operator_action=True))
    assert await states_of(store) == ["cancelled", "answered"]
    assert await store.waits.of_task(TaskKey("r1", "a")) == []
    await make(store, waits_at(opened=[wait("w4")]), waits_at(cancelled=None))
    assert await states_of(store) == ["cancelled", "answered", "cancelled"]


async def test_waits_are_listed_by_tenant_page_by_page(running_store: Store) -> None:
    """HTTP: oldest first, with the number of all."""
    store = running_store
    await make(store, deferring(*(wait(f"w{number}", f"n{number}") for number in range(5))))
    every: dict[str, str] = {"state": "", "workflow": "", "run": ""}
    rows = await store.waits.list_page("public", **every, after=(NOON, "w1"), limit=2)
    assert [one.id for one in rows] == ["w2", "w3"]
    assert await store.waits.count("public", **every) == 5
    for other in ({"state": "answered"}, {"workflow": "others"}, {"run": "r2"}):
        assert await store.waits.count("public", **(every | other)) == 0
    assert await store.waits.count("acme", **every) == 0


async def test_waits_are_deleted_with_their_run(running_store: Store) -> None:
    """Retention."""
    await make(running_store, waits_at(opened=[wait()]), move("r1", CLAIMED, succeeded(CLAIMED)))
    await make(running_store, Change(run="r1", updated_run=run_row(state=RunState.SUCCESS, ended_at=NOON)))
    assert await running_store.runs.prune("public", NOON.replace(year=2100), 10) == 1
    assert await states_of(running_store) == []
