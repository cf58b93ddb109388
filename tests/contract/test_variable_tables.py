"""Variables, secrets and idempotent requests on every database."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.contract.access_samples import request, secret, variable
from tests.contract.run_samples import after, creation, fire_row, make, run_row
from tests.contract.samples import NOON, ODD_NAMES
from tidemill.kernel.limits import LISTED_VALUE_LIMIT
from tidemill.storage.store import Store
from tidemill.storage.tables.requests import FIRE_PREFIX
from tidemill.workflows.states import RunState


@pytest.mark.parametrize("value", [None, False, 0, "", "naïve 名前 🌊\0", 1.5, [1, {"a": None}], {"b": [], "a": {}}])
async def test_a_variable_is_any_value_of_json(store: Store, value: object) -> None:
    await store.variables.upsert(variable(value="before"))
    await store.variables.upsert(variable(value=value))
    assert await store.variables.get("acme", "region") == variable(value=value)


async def test_variables_belong_to_a_tenant(store: Store) -> None:
    """S-5."""
    for name in ODD_NAMES:
        await store.variables.upsert(variable(name, value=name))
    await store.variables.upsert(variable(tenant="other"))
    assert [one.variable.value for one in await store.variables.for_tenant("acme")] == sorted(ODD_NAMES)
    assert await store.variables.get("acme", "region") is None
    assert await store.variables.delete("acme", ODD_NAMES[2])
    assert not await store.variables.delete("acme", ODD_NAMES[2])
    assert len(await store.variables.for_tenant("acme")) == len(ODD_NAMES) - 1


async def test_a_list_of_variables_leaves_out_large_values(store: Store) -> None:
    """A value as JSON counts in bytes, whatever its characters are."""
    sizes = [LISTED_VALUE_LIMIT, LISTED_VALUE_LIMIT + 1]
    for name, text in [("a", "x" * (sizes[0] - 2)), ("b", "x" * (sizes[1] - 2)), ("c", "é" * LISTED_VALUE_LIMIT)]:
        await store.variables.upsert(variable(name, value=text))
    whole, larger, other = await store.variables.for_tenant("acme")
    assert (len(whole.variable.value), whole.large_value) == (sizes[0] - 2, None)
    assert (larger.variable.value, larger.large_value) == (None, sizes[1])
    assert (other.variable.value, other.large_value) == (None, 2 * LISTED_VALUE_LIMIT + 2)


async def test_a_version_of_a_secret_follows_the_one_before(store: Store) -> None:
    """S-6: of several writers of one version, one succeeds."""
    assert not await store.secrets.put(secret(version=2))
    written = await asyncio.gather(*(store.secrets.put(secret(updated_by=f"key:{one}")) for one in range(4)))
    assert sorted(written) == [False, False, False, True]
    assert await store.secrets.put(secret(version=2, ciphertext=b"second"))
    assert not await store.secrets.put(secret(version=2, ciphertext=b"third"))
    assert await store.secrets.get("acme", "password") == secret(version=2, ciphertext=b"second")
    assert await store.secrets.for_tenant("acme") == [secret(version=2, ciphertext=b"second")]
    assert await store.secrets.for_tenant("other") == []
    assert await store.secrets.delete("acme", "password")
    assert not await store.secrets.delete("acme", "password")
    assert await store.secrets.put(secret())


async def test_a_key_is_rewrapped_unless_the_secret_has_changed(store: Store) -> None:
    """S-6: a rotation never brings an older value back."""
    for one in (secret("a"), secret("b"), secret("c", key_id="k2"), secret("a", tenant="other")):
        await store.secrets.put(one)
    assert await store.secrets.list_not_wrapped_by("k2", 2) == [secret("a"), secret("b")]
    rewrapped = secret("a", key_id="k2", wrapped_key=b"new")
    assert await store.secrets.rewrap(rewrapped, "k1")
    assert not await store.secrets.rewrap(rewrapped, "k1")
    await store.secrets.put(secret("b", version=2))
    assert not await store.secrets.rewrap(secret("b", key_id="k2"), "k1")
    assert await store.secrets.get("acme", "a") == rewrapped
    assert await store.secrets.list_not_wrapped_by("k2", 9) == [secret("b", version=2), secret("a", tenant="other")]


async def test_one_of_several_requests_with_a_key_is_handled(store: Store) -> None:
    owners = [f"o{number}" for number in range(5)]
    begun = await asyncio.gather(*(store.requests.begin(request(owner=one), after(-9)) for one in owners))
    (owner,) = {one.owner for one in begun}
    assert begun == [request(owner=owner)] * 5
    assert await store.requests.get("acme", "i1") == request(owner=owner)
    assert await store.requests.get("acme", "i2") is None
    assert await store.requests.begin(request("i2"), NOON) == request("i2")
    assert await store.requests.begin(request(tenant="other"), NOON) == request(tenant="other")


async def test_the_first_answer_is_kept_until_it_is_old(store: Store) -> None:
    await store.requests.begin(request(), NOON)
    answer = request(status=201, headers={"location": "/runs/1"}, body=b"\0\xff{}")
    assert await store.requests.finish(answer) == answer
    assert await store.requests.finish(request(status=201, body=b"second")) == answer
    assert not await store.requests.claim(request(owner="o2"), "o1")
    assert await store.requests.begin(request(owner="o2", at=after(5)), NOON) == answer
    late = request(owner="o2", at=after(5))
    assert await store.requests.begin(late, after(1)) == late
    assert await store.requests.finish(answer) == answer
    assert await store.requests.get("acme", "i1") == late


async def test_one_of_several_calls_takes_a_request_over(store: Store) -> None:
    """The request keeps the time at which it was begun first, and any of its calls may answer it."""
    await store.requests.begin(request(), NOON)
    owners = [f"o{number}" for number in range(2, 7)]
    claimed = await asyncio.gather(*(store.requests.claim(request(owner=one), "o1") for one in owners))
    (owner,) = (one for one, is_claimed in zip(owners, claimed, strict=True) if is_claimed)
    assert await store.requests.begin(request(owner="late", at=after(5)), NOON) == request(owner=owner)
    assert await store.requests.finish(request(status=201)) == request(owner=owner, status=201)


async def test_old_requests_are_pruned(store: Store) -> None:
    for number in range(3):
        await store.requests.begin(request(f"i{number}", at=after(number)), NOON)
    assert await store.requests.prune(after(2)) == 2
    assert await store.requests.begin(replace(request("i2"), owner="late"), NOON) == request("i2", at=after(2))


async def test_fires_of_requests_are_pruned_with_them(store: Store) -> None:
    """Other fires outlive their runs, so that no slot fires twice."""
    keys = [f"{FIRE_PREFIX}e1", "hourly"]
    for number, key in enumerate(keys):
        run = f"r{number}"
        ended = run_row(run, state=RunState.SUCCESS, ended_at=NOON)
        await make(store, creation(ended, fire=fire_row(run, key=key, slot=NOON)))
    assert await store.runs.prune("public", after(9), 10) == 2
    await store.requests.prune(after(1))
    found = [await store.runs.find_fired("public", "flow", key, NOON) for key in keys]
    assert found == [None, "r1"]
