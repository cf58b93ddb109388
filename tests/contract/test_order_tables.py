"""Orders of remote attempts and code bundles on every database."""

import asyncio
from typing import Any

from msgspec.structs import replace

from tests.contract.access_samples import tenant
from tests.contract.run_samples import after, creation, ending, make, move, queued, running, task_row
from tests.contract.samples import NOON, NOON_ELSEWHERE
from tidemill.storage.store import Store
from tidemill.storage.tables.orders import AttemptClaim, AttemptOrder, TokenHolder
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import TaskState

DIGEST = bytes(range(32))
KEY = AttemptKey("r1", "a", UNMAPPED, 1)
HOLDER = TokenHolder(KEY, "public")


def order(**given: Any) -> AttemptOrder:
    """Return the order of the first attempt of `a`."""
    fields = {"run": "r1", "task": "a", "element": UNMAPPED, "attempt": 1, "tenant": "public", "digest": DIGEST}
    return AttemptOrder(**fields | {"payload": b"\x00what", "bundle": None, "created_at": NOON} | given)


async def claimed_run(store: Store) -> None:
    """Make a run whose task is queued."""
    row = task_row()
    await make(store, creation(), move("r1", row, queued(row)))


async def test_an_order_is_found_by_the_digest_of_its_token(store: Store) -> None:
    await store.attempt_orders.put(order(created_at=NOON_ELSEWHERE, bundle="b1"))
    assert await store.attempt_orders.find_holder(DIGEST) == HOLDER
    assert await store.attempt_orders.find_holder(bytes(32)) is None
    assert await store.attempt_orders.get(KEY) == order(bundle="b1")
    assert await store.attempt_orders.get(KEY._replace(attempt=2)) is None
    assert order().key == KEY


async def test_a_repeated_order_replaces_the_token(store: Store) -> None:
    await store.attempt_orders.put(order())
    await store.attempt_orders.begin(KEY, "first")
    await store.attempt_orders.put(order(digest=bytes(32)))
    assert await store.attempt_orders.find_holder(DIGEST) is None
    assert await store.attempt_orders.find_holder(bytes(32)) == HOLDER


async def test_one_process_begins_an_attempt(store: Store) -> None:
    """Executors: each attempt runs at most once, however many processes have its token."""
    await store.attempt_orders.put(order())
    begun = await asyncio.gather(*(store.attempt_orders.begin(KEY, f"process {n}") for n in range(4)))
    assert sorted(begun) == [False, False, False, True]
    found = await store.attempt_orders.get(KEY)
    assert found is not None
    assert await store.attempt_orders.begin(KEY, found.process or "")
    assert not await store.attempt_orders.begin(KEY._replace(attempt=2), "process 1")


async def test_the_claim_of_an_attempt_shows_its_owner_while_it_is_current(store: Store) -> None:
    """W-1: the row's attempt is the fence."""
    await claimed_run(store)
    claims = store.attempt_orders.claims
    others = [KEY._replace(attempt=2), KEY._replace(task="b"), KEY._replace(run="r2"), KEY._replace(element=0)]
    assert await claims([KEY, *others]) == {KEY: AttemptClaim("node-1", TaskState.QUEUED)}
    assert await claims([]) == {}
    row = queued(task_row())
    await make(store, move("r1", row, running(row)))
    assert await claims([KEY]) == {KEY: AttemptClaim("node-1", TaskState.RUNNING)}
    await make(store, ending("r1", running(row)))
    assert await claims([KEY]) == {}


async def test_old_orders_of_attempts_that_are_over_are_pruned(store: Store) -> None:
    await claimed_run(store)
    await store.attempt_orders.put(order())
    await store.attempt_orders.put(order(run="gone", digest=b"gone"))
    await store.attempt_orders.put(order(run="new", digest=b"new", created_at=after(10)))
    assert await store.attempt_orders.prune(after(5)) == 1
    assert await store.attempt_orders.find_holder(b"gone") is None
    assert await store.attempt_orders.find_holder(DIGEST) == HOLDER
    assert await store.attempt_orders.find_holder(b"new") is not None


async def test_a_bundle_stays_while_an_order_needs_it(store: Store) -> None:
    bundles = store.code_bundles
    assert not await bundles.touch("public", "b1", NOON)
    await bundles.add("public", "b1", b"\x00archive", NOON_ELSEWHERE)
    await bundles.add("public", "b1", b"another", NOON)
    await bundles.add("acme", "b1", b"theirs", NOON)
    assert await bundles.read("public", "b1") == b"\x00archive"
    assert await bundles.read("acme", "b1") == b"theirs"
    assert await bundles.read("public", "b2") is None
    await store.attempt_orders.put(order(bundle="b1", created_at=after(100)))
    assert await bundles.prune(after(50)) == 1
    assert await bundles.read("acme", "b1") is None
    assert await bundles.read("public", "b1") == b"\x00archive"


async def test_a_bundle_that_was_just_ordered_stays(store: Store) -> None:
    """Its order is written a moment later."""
    await store.code_bundles.add("public", "b1", b"archive", NOON)
    assert await store.code_bundles.touch("public", "b1", after(60))
    assert await store.code_bundles.touch("public", "b1", after(1))
    assert await store.code_bundles.prune(after(50)) == 0
    assert await store.code_bundles.prune(after(61)) == 1


async def test_all_nodes_of_a_store_have_one_instance(store: Store) -> None:
    found = await asyncio.gather(*(store.attempt_orders.instance(f"candidate {n}") for n in range(3)))
    assert len(set(found)) == 1
    assert await store.attempt_orders.instance("late") == found[0]


async def test_orders_and_bundles_go_with_their_tenant(store: Store) -> None:
    await store.tenants.add(tenant("acme"))
    await store.attempt_orders.put(order(tenant="acme"))
    await store.code_bundles.add("acme", "b1", b"archive", NOON)
    await store.tenants.delete("acme")
    assert await store.attempt_orders.find_holder(DIGEST) is None
    assert await store.code_bundles.read("acme", "b1") is None


async def test_a_replaced_order_keeps_every_field(store: Store) -> None:
    full = replace(order(), bundle="b1", process="p1", payload=bytes(range(256)))
    await store.attempt_orders.put(full)
    await store.attempt_orders.put(full)
    assert await store.attempt_orders.get(KEY) == full
