"""Variables, secrets and idempotent requests on every database."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.contract.access_samples import request, secret, variable
from tests.contract.run_samples import after
from tests.contract.samples import NOON, ODD_NAMES
from tidemill.storage.store import Store


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
    assert [one.value for one in await store.variables.for_tenant("acme")] == sorted(ODD_NAMES)
    assert await store.variables.get("acme", "region") is None
    assert await store.variables.delete("acme", ODD_NAMES[2])
    assert not await store.variables.delete("acme", ODD_NAMES[2])
    assert len(await store.variables.for_tenant("acme")) == len(ODD_NAMES) - 1


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
    begun = await asyncio.gather(*(store.requests.begin(request(owner=one), after(-9), after(-9)) for one in owners))
    (owner,) = {one.owner for one in begun}
    assert begun == [request(owner=owner)] * 5
    assert await store.requests.begin(request("i2"), NOON, NOON) == request("i2")
    assert await store.requests.begin(request(tenant="other"), NOON, NOON) == request(tenant="other")


async def test_an_answer_is_kept_until_it_is_old(store: Store) -> None:
    await store.requests.begin(request(), NOON, NOON)
    answer = request(status=201, headers={"location": "/runs/1"}, body=b"\0\xff{}")
    await store.requests.finish(answer)
    assert await store.requests.begin(request(owner="o2", at=after(5)), NOON, after(9)) == answer
    late = request(owner="o2", at=after(5))
    assert await store.requests.begin(late, after(1), after(1)) == late


async def test_a_request_that_was_not_answered_can_be_made_again(store: Store) -> None:
    """After a crash: what the earlier owner writes later is ignored."""
    await store.requests.begin(request(), NOON, NOON)
    assert await store.requests.begin(request(owner="o2"), after(9), NOON) == request()
    again = request(owner="o2", at=after(5))
    assert await store.requests.begin(again, NOON, after(1)) == again
    await store.requests.finish(request(status=500))
    await store.requests.delete("acme", "i1", "o1")
    assert await store.requests.begin(request(owner="o3"), NOON, NOON) == again
    await store.requests.delete("acme", "i1", "o2")
    assert await store.requests.begin(request(owner="o3"), NOON, NOON) == request(owner="o3")


async def test_old_requests_are_pruned(store: Store) -> None:
    for number in range(3):
        await store.requests.begin(request(f"i{number}", at=after(number)), NOON, NOON)
    assert await store.requests.prune(after(2)) == 2
    assert await store.requests.begin(replace(request("i2"), owner="late"), NOON, NOON) == request("i2", at=after(2))
