"""Limits of signing in: guesses are slowed down, and keep out neither other accounts nor other addresses."""

import asyncio
from collections.abc import AsyncIterator
from statistics import median
from time import monotonic
from typing import Any

import httpx
import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, client_of, served
from tidemill.access.accounts import is_password
from tidemill.access.principal import Role
from tidemill.engine.access import accounts
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.server.authentication import CredentialAuthentication

PASSWORD = "correct horse battery"
STRANGER, OTHER = {"x-forwarded-for": "203.0.113.7"}, {"x-forwarded-for": "203.0.113.8"}


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A server with authentication and an account; a test may give its settings."""
    node = tm.Node(settings=getattr(request, "param", {}))
    async with node, served(node, CredentialAuthentication(node.access)) as one, client_of(one.http.base_url) as http:
        await node.access.accounts.create(LOCAL_PRINCIPAL, "ada", Role.WRITE, PASSWORD)
        yield one._replace(http=http)


async def sign_in(server: Served, account: str, password: str, **options: Any) -> httpx.Response:
    """Sign in with a password."""
    return await server.http.post("/session", json={"account": account, "password": password}, **options)


async def test_guesses_for_one_account_are_slowed_down_and_keep_no_one_else_out(server: Served) -> None:
    """Fault 92: 429 with retry-after after five, before a password is hashed; another account can sign in."""
    answers = [await sign_in(server, "eve", "wrong") for _ in range(45)]
    assert [one.status_code for one in answers] == [401] * 5 + [429] * 40
    assert (answers[-1].json()["code"], int(answers[-1].headers["retry-after"]) > 30) == ("rate_limited", True)
    assert (await sign_in(server, "ada", PASSWORD)).status_code == 201


async def test_guesses_for_accounts_that_do_not_exist_keep_no_one_out(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 92: as many at a time as a stranger likes, from the same address; few of them are hashed."""
    hashed: list[str] = []

    def is_noted_password(password: str, stored: str) -> bool:
        hashed.append(password)
        return is_password(password, stored)

    monkeypatch.setattr(accounts, "is_password", is_noted_password)
    for _ in range(4):
        await sign_in(server, "eve", "wrong")
    began = monotonic()
    async with asyncio.TaskGroup() as group:
        guesses = [group.create_task(sign_in(server, f"eve{one}", "wrong"), name=f"guess {one}") for one in range(90)]
        assert (await sign_in(server, "ada", PASSWORD)).status_code == 201
    most = 1 + (monotonic() - began) / accounts.DECOY_INTERVAL
    assert {one.result().status_code for one in guesses} == {401, 429}
    assert hashed.count(PASSWORD) == 1
    assert len(hashed) - 1 - 4 <= most


async def test_an_account_that_does_not_exist_takes_as_long_as_one_that_does(server: Served) -> None:
    """Also if many are tried one after another, and no password is hashed for most of them."""
    durations: dict[str, list[float]] = {"ada": [], "eve": []}
    for number in range(4):
        for name in durations:
            began = monotonic()
            account = name if name == "ada" else f"{name}{number}"
            assert (await sign_in(server, account, "wrong")).status_code == 401
            durations[name].append(monotonic() - began)
    known, unknown = (median(one) for one in durations.values())
    assert known / 3 < unknown < known * 3


async def test_failures_of_an_address_keep_no_valid_credential_out(server: Served) -> None:
    """Clients behind one proxy share its address: only failures get 429."""
    created = await server.node.access.keys.create(LOCAL_PRINCIPAL, Role.READ)
    guess = {"authorization": "Bearer tm_00000000_" + "a" * 43}
    codes = [(await server.http.get("/me", headers=guess)).status_code for _ in range(32)]
    assert set(codes) == {401, 429}
    assert (await sign_in(server, "eve", "wrong")).status_code == 429
    assert (await server.http.post("/session", json={"key": "tm_00000000_" + "a" * 43})).status_code == 429
    assert (await server.http.post("/session", json={"key": created.token})).status_code == 201
    assert (await sign_in(server, "ada", PASSWORD)).status_code == 201


async def test_a_trusted_proxy_names_the_address_of_a_client(server: Served) -> None:
    """Failures of one do not count for another."""
    for _ in range(5):
        assert (await sign_in(server, "ada", "wrong", headers=STRANGER)).status_code == 401
    assert (await sign_in(server, "ada", PASSWORD, headers=STRANGER)).status_code == 429
    assert (await sign_in(server, "eve", "wrong", headers=OTHER)).status_code == 401


@pytest.mark.parametrize(
    ("server", "is_trusted"),
    [({}, True), ({"trusted_proxies": "127.0.0.0/8"}, True), ({"trusted_proxies": "10.0.0.0/8"}, False)],
    indirect=["server"],
)
async def test_only_a_trusted_proxy_says_that_a_client_uses_tls(server: Served, is_trusted: bool) -> None:
    """The cookie of the session is then sent over TLS only; a client itself cannot say where it comes from."""
    opened = await sign_in(server, "ada", PASSWORD, headers={"x-forwarded-proto": "https"})
    assert ("secure" in opened.headers["set-cookie"].lower()) == is_trusted
    codes = [(await sign_in(server, "eve", "x", headers=STRANGER)).status_code for _ in range(6)]
    assert codes[-1] == 429
    assert (await sign_in(server, "eve", "x", headers=OTHER)).status_code == (401 if is_trusted else 429)
