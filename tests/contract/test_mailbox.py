"""The mailbox: requests reach the owner of their target, and answers the node that asked."""

import asyncio
from datetime import UTC, timedelta

import pytest
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase
from tests.contract.samples import NOON, NOON_ELSEWHERE, NOON_NOWHERE, journal, key, outcomes, push, request
from tidemill.storage.mailbox_port import StoredAnswer
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next

PATIENCE = 20.0  # seconds until a test gives up


async def test_a_request_reaches_the_owner_of_its_target(store: Store) -> None:
    """G-31: and nobody else; a request for a part without an owner waits."""
    await store.part_owners.acquire([key("a", kind="accumulator"), key("r")], "one")
    await store.part_owners.acquire([key("r", tenant="other")], "two")
    sent = [
        request("3", target=key("r"), at=NOON_ELSEWHERE),
        request("1", target=key("a", kind="accumulator"), payload=b"\x00\xff"),
        request("2", target=key("r", tenant="other")),
        request("4", target=key("nobody's")),
    ]
    for one in sent:
        await store.mailbox.send(one)
    found = await store.mailbox.read_requests("one")
    assert found == [sent[1], request("3", target=key("r"))]
    assert found[1].at.tzinfo is UTC
    assert await store.mailbox.read_requests("one", ["1", "unknown"]) == [found[1]]
    assert await store.mailbox.read_requests("two") == [sent[2]]
    assert await store.mailbox.read_requests("three") == []


async def test_a_request_without_an_answer_goes_to_the_next_owner(store: Store) -> None:
    """G-31: an answered one does not."""
    fences = await store.part_owners.acquire([key()], "one")
    assert isinstance(fences, list)
    for name in ("1", "2"):
        await store.mailbox.send(request(name))
    await store.mailbox.answer(StoredAnswer("1", b"done"))
    await store.part_owners.release(fences)
    assert await store.mailbox.read_requests("one") == []
    await store.part_owners.acquire([key()], "two")
    assert await store.mailbox.read_requests("two") == [request("2")]


async def test_an_answer_reaches_the_sender_and_the_first_one_counts(store: Store) -> None:
    await store.mailbox.send(request("1", sender="asking"))
    await store.mailbox.send(request("2", sender="other"))
    for payload in (b"first\x00", b"second"):
        await store.mailbox.answer(StoredAnswer("1", payload))
    await store.mailbox.answer(StoredAnswer("unknown", b"ignored"))
    assert await store.mailbox.read_answers("asking") == [StoredAnswer("1", b"first\x00")]
    assert await store.mailbox.read_answers("other") == []


async def test_deleted_requests_are_gone_with_what_was_stored_for_them(store: Store) -> None:
    """A request numbers its push by its own id, so that it is applied once."""
    await store.part_owners.acquire([key("a", kind="accumulator")], "one")
    done, open_ = (request(name, target=key("a", kind="accumulator")) for name in ("1", "2"))
    for one in (done, open_):
        await store.mailbox.send(one)
        await store.checkpoints.append([], pushes=[push(1, client=one.id)])
    await store.mailbox.answer(StoredAnswer("1", b"answer"))
    await store.mailbox.delete([done])
    assert await store.mailbox.read_answers(done.sender) == []
    assert await store.mailbox.read_requests("one") == [replace(open_, applied=b"answer")]
    found = [await store.producers.newest_push(journal(), client) for client in ("1", "2")]
    assert found == [None, push(1, client="2")]


async def test_old_requests_are_deleted(store: Store) -> None:
    await store.part_owners.acquire([key()], "one")
    for name, minutes in (("1", -1), ("2", 0), ("3", 1)):
        await store.mailbox.send(request(name, at=NOON + timedelta(minutes=minutes)))
    await store.mailbox.answer(StoredAnswer("1", b"never read"))
    await store.mailbox.delete_before(NOON)
    assert [one.id for one in await store.mailbox.read_requests("one")] == ["2", "3"]
    assert await store.mailbox.read_answers("node 1") == []


async def test_a_refused_request_was_not_sent(store: Store) -> None:
    await store.part_owners.acquire([key()], "one")
    fail_next(store, 1)
    assert await outcomes(store.mailbox.send(request())) == ["refused"]
    with pytest.raises(ValueError, match="without a zone"):
        await store.mailbox.send(request(at=NOON_NOWHERE))
    assert await store.mailbox.read_requests("one") == []


async def test_other_stores_notice_mail(database: ContractDatabase) -> None:
    """Requests and answers, within moments; a listener that asked for no mail is not bothered with it."""
    one, other = database.store(), database.store()
    await one.open()
    await other.open()
    mail, bothered = asyncio.Event(), asyncio.Event()
    await other.listen(mail.set, "mail")
    await other.listen(bothered.set)
    for work in (one.mailbox.send(request()), one.mailbox.answer(StoredAnswer("1", b"done"))):
        mail.clear()
        await work
        async with asyncio.timeout(PATIENCE):
            await mail.wait()
    assert not bothered.is_set()
    await other.close()
    await one.mailbox.send(request("2"))
    await one.close()
