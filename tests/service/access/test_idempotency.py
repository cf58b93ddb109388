"""Idempotent requests: handled once, answered as often as they are repeated."""

import pytest

import tidemill as tm
from tidemill.engine.access.idempotency import ANSWER_LIFETIME, HANDLING_LIFETIME
from tidemill.engine.access.services import AccessServices
from tidemill.kernel.clock import VirtualClock

ROUTE = "POST /api/v1/workflows/report/runs"


async def refusal(access: AccessServices, *request: object) -> tuple[str, int]:
    """Return code and status of the refusal of a request."""
    with pytest.raises(tm.RequestError) as caught:
        await access.requests.begin(*request)  # type: ignore[arg-type]
    return caught.value.code, caught.value.status


async def test_a_repeated_request_gets_the_first_answer(access: AccessServices, clock: VirtualClock) -> None:
    record = await access.requests.begin("acme", "k1", ROUTE, b"{}")
    assert record.status is None
    assert await refusal(access, "acme", "k1", ROUTE, b"{}") == ("request_in_progress", 409)
    await access.requests.finish(record, 201, {"location": "/runs/1"}, b"answer")
    again = await access.requests.begin("acme", "k1", ROUTE, b"{}")
    assert (again.status, again.headers, again.body) == (201, {"location": "/runs/1"}, b"answer")
    assert (await access.requests.begin("beta", "k1", ROUTE, b"{}")).status is None
    clock.advance_to(ANSWER_LIFETIME.total_seconds() + 1)
    assert (await access.requests.begin("acme", "k1", ROUTE, b"{}")).status is None


async def test_a_key_belongs_to_one_request(access: AccessServices) -> None:
    record = await access.requests.begin("acme", "k1", ROUTE, b"{}")
    assert await refusal(access, "acme", "k1", ROUTE, b"[]") == ("idempotency_conflict", 409)
    await access.requests.finish(record, 201, {}, b"")
    assert await refusal(access, "acme", "k1", ROUTE, b"[]") == ("idempotency_conflict", 409)
    assert await refusal(access, "acme", "k1", f"{ROUTE}x", b"{}") == ("idempotency_conflict", 409)
    assert await refusal(access, "acme", "k\n", ROUTE, b"") == ("invalid_idempotency_key", 400)


async def test_a_request_that_failed_or_was_lost_can_be_made_again(access: AccessServices, clock: VirtualClock) -> None:
    """The server may be killed while it handles a request."""
    record = await access.requests.begin("acme", "k1", ROUTE, b"{}")
    await access.requests.abandon(record)
    lost = await access.requests.begin("acme", "k1", ROUTE, b"{}")
    clock.advance_to(HANDLING_LIFETIME.total_seconds() + 1)
    again = await access.requests.begin("acme", "k1", ROUTE, b"{}")
    assert again.owner != lost.owner
    await access.requests.finish(lost, 500, {}, b"late")
    await access.requests.finish(again, 201, {}, b"answer")
    assert (await access.requests.begin("acme", "k1", ROUTE, b"{}")).body == b"answer"
