"""Secrets and variables: encrypted in the store, bound to their place, and readable during a rotation."""

import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tidemill as tm
from tests.service.access.principals import admin_of
from tidemill.access.envelope import MasterKeys, SecretPlace, new_master_keys_text
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.kernel.settings import Settings
from tidemill.storage.sqlite.key_file import read_or_create_keys
from tidemill.storage.sqlite.store import SqliteStore
from tidemill.storage.store import Store
from tidemill.storage.tables.access import AuditFilter
from tidemill.testing.faults.stores import Transact, intercept_transactions

CANARY = "canary-5f1d8c-do-not-leak"


def key_of(id: str) -> str:
    """Return a master key that depends on its id only."""
    return f"{id}:{base64.b64encode(id.encode().ljust(32, b'.')).decode()}"


def services(store: Store, keys: str) -> AccessServices:
    """Return access services with master keys."""
    return AccessServices(store, VirtualClock(), Settings(secret_keys=keys))


def fail_every_third() -> Callable[[Transact, Sequence[Any]], Awaitable[Any]]:
    """Return what fails every third transaction of a store."""
    numbers = count(1)

    async def intercept(transact: Transact, units: Sequence[Any]) -> Any:
        if next(numbers) % 3 == 0:
            raise StoreError("the transaction failed on purpose")
        return await transact(units)

    return intercept


@pytest.fixture
async def file_store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store in a file."""
    store = SqliteStore(str(tmp_path / "tidemill.db"))
    await store.open()
    yield store
    await store.close()


async def test_a_secret_is_revealed_to_its_tenant_only(access: AccessServices) -> None:
    """S-6."""
    acme = await admin_of(access, "acme")
    status = await access.secrets.set(acme, "password", CANARY)
    assert status.version == 1
    assert await access.secrets.reveal("acme", "password") == CANARY
    assert (await access.secrets.set(acme, "password", "second")).version == 2
    assert await access.secrets.reveal("acme", "password") == "second"
    with pytest.raises(tm.RequestError) as caught:
        await access.secrets.reveal("public", "password")
    assert (caught.value.code, caught.value.status, caught.value.facts["suggestions"]) == ("secret_not_found", 404, [])
    await access.secrets.delete(acme, "password")
    with pytest.raises(tm.RequestError, match="there is no secret 'password'"):
        await access.secrets.reveal("acme", "password")


async def test_a_canary_is_in_no_file_and_in_no_list(file_store: Store, tmp_path: Path) -> None:
    """S-6, fault 90: neither the database, nor its log, nor the audit log holds the value."""
    access = AccessServices(file_store, VirtualClock(), Settings())
    await access.secrets.set(LOCAL_PRINCIPAL, "password", CANARY)
    shown = repr(
        (await access.secrets.list_for(LOCAL_PRINCIPAL), await access.audit.find(AuditFilter(tenant="public")))
    )
    assert CANARY not in shown
    assert await access.secrets.reveal("public", "password") == CANARY
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert len(files) >= 2
    for path in files:
        assert CANARY.encode() not in path.read_bytes(), path


async def test_a_ciphertext_that_was_moved_cannot_be_decrypted(access: AccessServices, store: Store) -> None:
    """Fault 91: to another tenant, another name or another version."""
    await access.secrets.set(LOCAL_PRINCIPAL, "password", CANARY)
    stored = await store.secrets.get("public", "password")
    assert stored is not None
    acme = await admin_of(access, "acme")
    await access.secrets.set(acme, "password", "other")
    moves = [
        replace(stored, tenant="acme", version=2),
        replace(stored, name="another"),
        replace(stored, version=2),
        replace(stored, version=3, ciphertext=stored.ciphertext[:-1] + b"\0"),
        replace(stored, version=4, wrapped_key=b"short"),
    ]
    for moved in moves:
        assert await store.secrets.put(moved)
        with pytest.raises(OperationError, match="cannot be decrypted: its row was changed or moved") as caught:
            await access.secrets.reveal(moved.tenant, moved.name)
        assert caught.value.__cause__ is None


async def test_a_rotation_leaves_secrets_readable_and_continues_after_a_fault(store: Store) -> None:
    """S-6, fault 91: crash in a rotation."""
    before, both, after = (services(store, keys) for keys in (key_of("a"), f"{key_of('b')},{key_of('a')}", key_of("b")))
    for number in range(5):
        await before.secrets.set(LOCAL_PRINCIPAL, f"s{number}", f"value {number}")
    undo = intercept_transactions(store, fail_every_third())
    faults = 0
    while await store.secrets.list_not_wrapped_by("b", 1):
        with suppress(StoreError):
            await both.secrets.rotate(LOCAL_PRINCIPAL)
        faults += 1
        values = [await both.secrets.reveal("public", f"s{number}") for number in range(5)]
        assert values == [f"value {number}" for number in range(5)]
    undo()
    assert faults == 3
    assert await after.secrets.reveal("public", "s4") == "value 4"
    with pytest.raises(OperationError, match=r"needs the master key 'b', and secret_keys has a; add it back"):
        await before.secrets.reveal("public", "s0")


async def test_a_store_that_others_share_needs_configured_keys(access: AccessServices, store: Store) -> None:
    """S-6: keys in the database would protect nothing."""
    store.read_local_keys = lambda: None
    with pytest.raises(tm.RequestError, match="set secret_keys, or TIDEMILL_SECRET_KEYS") as caught:
        await access.secrets.set(LOCAL_PRINCIPAL, "password", CANARY)
    assert (caught.value.code, caught.value.status) == ("no_secret_keys", 409)


def test_the_key_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """S-6."""
    path = tmp_path / "tidemill.db-secret-keys"
    text = read_or_create_keys(path)
    assert MasterKeys.parse(text)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_create_keys(path) == text
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    os.chmod(path, 0o640)
    with pytest.raises(OperationError, match=r"others can read it; run `chmod 600"):
        read_or_create_keys(path)


@pytest.mark.parametrize("text", ["", "a", "a:", ":AAAA", "a:AAAA", f"{key_of('a')},{key_of('a')}", f"{key_of('a')},"])
def test_keys_that_cannot_be_read_are_not_repeated(text: str) -> None:
    """Fault 90."""
    with pytest.raises(tm.DefinitionError, match=r"entry \d is not ID:KEY") as caught:
        MasterKeys.parse(text)
    assert "AAAA" not in str(caught.value)
    assert key_of("a") not in str(caught.value)


def test_settings_do_not_show_their_keys() -> None:
    """Fault 90."""
    text = new_master_keys_text()
    assert text not in repr(Settings(secret_keys=text))


@given(value=st.binary(), tenant=st.text(), name=st.text(), version=st.integers(1, 2**31))
def test_an_envelope_gives_back_what_was_sealed(value: bytes, tenant: str, name: str, version: int) -> None:
    """S-6: for its own place only."""
    keys, place = MasterKeys.parse(key_of("a")), SecretPlace(tenant, name, version)
    sealed = keys.encrypt(value, place)
    assert keys.decrypt(sealed, place) == value
    for other in (replace(place, tenant=tenant + "x"), replace(place, name=name + "x"), replace(place, version=0)):
        with pytest.raises(OperationError):
            keys.decrypt(sealed, other)


async def test_variables_are_set_and_read(access: AccessServices) -> None:
    acme = await admin_of(access, "acme")
    await access.variables.set(acme, "region", {"name": "eu"})
    assert (await access.variables.get("acme", "region")).value == {"name": "eu"}
    with pytest.raises(tm.RequestError, match=r"there is no variable 'regio' \(did you mean 'region'\?\)") as caught:
        await access.variables.get("acme", "regio")
    assert (caught.value.code, caught.value.status) == ("variable_not_found", 404)
    with pytest.raises(tm.RequestError):
        await access.variables.get("public", "region")
    with pytest.raises(tm.RequestError) as caught:
        await access.variables.set(acme, "a/b", 1)
    assert caught.value.code == "invalid_name"
    await access.variables.delete(acme, "region")
    assert await access.variables.list_for(acme) == []
    entries, _ = await access.audit.find(AuditFilter(tenant="acme"))
    assert [one.action for one in entries[:2]] == ["variable.delete", "variable.set"]
