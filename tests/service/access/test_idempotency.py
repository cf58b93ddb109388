"""Idempotent requests: one effect and one answer, whichever server a request reaches."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

import tidemill as tm
from tidemill.engine.access.idempotency import ANSWER_LIFETIME, IdempotentRequests, KeyedRequest
from tidemill.engine.workflows.process_identity import HostLiveness, current_owner
from tidemill.kernel.clock import VirtualClock
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import NodeRow

ROUTE = "POST /api/v1/workflows/report/runs"
OWNER, TTL = "first", 3.0


class KnownDeaths(HostLiveness):
    """Knows of processes that have died."""

    def __init__(self) -> None:
        self.dead: set[str] = set()

    def is_dead(self, owner: NodeRow) -> bool:
        return owner.id in self.dead


@pytest.fixture
async def passing_time(clock: VirtualClock) -> AsyncIterator[None]:
    """Time that passes in small steps, each after all that could happen before it."""

    async def pass_time() -> None:
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            clock.advance_to(clock.monotonic() + 0.05)

    async with asyncio.TaskGroup() as group:
        passing = group.create_task(pass_time(), name="passing time")
        yield
        passing.cancel()


@pytest.fixture
def liveness() -> KnownDeaths:
    """What all servers know of each other."""
    return KnownDeaths()


@pytest.fixture
def requests(store: Store, clock: VirtualClock, liveness: KnownDeaths) -> IdempotentRequests:
    """The requests of a server."""
    owner = replace(current_owner(clock.now()), id=OWNER)
    return IdempotentRequests(store.requests, clock, ttl=TTL, owner=owner, liveness=liveness)


@pytest.fixture
def others(store: Store, clock: VirtualClock, liveness: KnownDeaths) -> IdempotentRequests:
    """The requests of another server."""
    return IdempotentRequests(store.requests, clock, ttl=TTL, owner=current_owner(clock.now()), liveness=liveness)


async def begin(
    requests: IdempotentRequests, key: str = "k1", body: bytes = b"{}", tenant: str = "acme"
) -> KeyedRequest:
    """Begin a request."""
    return await requests.begin(tenant, key, ROUTE, body)


async def refusal(requests: IdempotentRequests, *request: object) -> tuple[str, int]:
    """Return code and status of the refusal of a request."""
    with pytest.raises(tm.RequestError) as caught:
        await requests.begin(*request)
    return caught.value.code, caught.value.status


async def answer(requests: IdempotentRequests, request: KeyedRequest, body: bytes = b"answer") -> None:
    """Handle a request, and answer it."""
    async with requests.handling(request):
        await requests.finish(request, 201, {"location": "/runs/1"}, body)


async def test_a_repeated_request_gets_the_first_answer(
    requests: IdempotentRequests, others: IdempotentRequests, clock: VirtualClock
) -> None:
    first = await begin(requests)
    assert (first.record.status, first.is_repetition) == (None, False)
    await answer(requests, first)
    again = (await begin(others)).record
    assert (again.status, again.headers, again.body) == (201, {"location": "/runs/1"}, b"answer")
    assert (await begin(others, tenant="beta")).record.status is None
    clock.advance_to(ANSWER_LIFETIME.total_seconds() + 1)
    late = await begin(others)
    assert (late.record.status, late.is_repetition) == (None, False)
    assert late.effect != first.effect


async def test_a_key_belongs_to_one_request(requests: IdempotentRequests) -> None:
    first = await begin(requests)
    assert await refusal(requests, "acme", "k1", ROUTE, b"[]") == ("idempotency_conflict", 409)
    await answer(requests, first)
    assert await refusal(requests, "acme", "k1", ROUTE, b"[]") == ("idempotency_conflict", 409)
    assert await refusal(requests, "acme", "k1", f"{ROUTE}x", b"{}") == ("idempotency_conflict", 409)
    assert await refusal(requests, "acme", "k\n", ROUTE, b"") == ("invalid_idempotency_key", 400)


async def test_a_request_that_failed_can_be_made_again_at_once_with_the_same_effect(
    requests: IdempotentRequests, others: IdempotentRequests
) -> None:
    first = await begin(requests)
    async with requests.handling(first):
        first.had_no_effect = True
    again = await begin(others)
    assert (again.effect, again.is_repetition, again.was_lost) == (first.effect, True, False)


async def test_a_request_that_was_cancelled_may_have_had_its_effect(
    requests: IdempotentRequests, others: IdempotentRequests
) -> None:
    """And so may its repetitions, until one of them is answered."""
    first = await begin(requests)
    with pytest.raises(asyncio.CancelledError):
        async with requests.handling(first):
            raise asyncio.CancelledError
    again = await begin(others)
    assert (again.effect, again.was_lost) == (first.effect, True)
    async with others.handling(again):
        again.had_no_effect = True
    assert (await begin(requests)).was_lost


@pytest.mark.usefixtures("passing_time")
async def test_a_request_ends_with_the_process_that_handles_it(
    requests: IdempotentRequests, others: IdempotentRequests, liveness: KnownDeaths, clock: VirtualClock
) -> None:
    first = await begin(requests)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(begin(others), name="repetition")
        await clock.sleep(TTL / 2)
        assert not waiting.done()
        liveness.dead.add(OWNER)
    again = waiting.result()
    assert clock.monotonic() < TTL
    assert (again.effect, again.is_repetition, again.was_lost) == (first.effect, True, True)


@pytest.mark.usefixtures("passing_time")
async def test_a_silent_call_is_replaced_and_the_first_of_both_answers_counts(
    requests: IdempotentRequests, others: IdempotentRequests, clock: VirtualClock
) -> None:
    """A server that was frozen and wakes up sends the answer that its successor has sent."""
    first = await begin(requests)
    again = await begin(others)
    assert clock.monotonic() == pytest.approx(TTL, abs=0.2)
    await answer(others, again)
    await requests.finish(first, 201, {}, b"late")
    assert first.record.body == b"answer"


@pytest.mark.usefixtures("passing_time")
async def test_a_request_of_a_server_of_an_older_version_is_taken_over_when_it_is_silent(
    requests: IdempotentRequests, store: Store, clock: VirtualClock
) -> None:
    """During a rolling upgrade: its owner is only an id, and says nothing about a process."""
    first = await begin(requests)
    assert await store.requests.claim(replace(first.record, owner="0b9f8e7d"), first.record.owner)
    again = await begin(requests)
    assert clock.monotonic() == pytest.approx(TTL, abs=0.2)
    assert (again.effect, again.was_lost) == (first.effect, True)
    await answer(requests, again)
    assert (await begin(requests)).record.body == b"answer"


@pytest.mark.usefixtures("passing_time")
async def test_a_call_that_goes_on_is_not_replaced_and_a_repetition_gets_its_answer(
    requests: IdempotentRequests, others: IdempotentRequests, clock: VirtualClock
) -> None:
    first = await begin(requests)
    async with requests.handling(first):
        assert await refusal(others, "acme", "k1", ROUTE, b"{}") == ("request_in_progress", 409)
        assert clock.monotonic() > TTL
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(begin(others), name="repetition")
            await clock.sleep(TTL / 2)
            await requests.finish(first, 201, {}, b"answer")
    assert waiting.result().record.body == b"answer"


@pytest.mark.usefixtures("passing_time")
async def test_the_error_of_a_request_in_progress_says_when_to_come_again(requests: IdempotentRequests) -> None:
    first = await begin(requests)
    async with requests.handling(first):
        with pytest.raises(tm.RequestError) as caught:
            await begin(requests)
        assert caught.value.facts["retry_after"] == 1
    assert (await begin(requests)).is_repetition
