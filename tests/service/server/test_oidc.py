"""OpenID Connect: tokens of an issuer are checked, people sign in there, and no address leads into our network."""

import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

import tidemill as tm
from tests.service.server.fake_issuer import CLIENT_ID, CLIENT_SECRET, FakeIssuer, issuing
from tests.service.server.serving_node import Served, served_app
from tidemill.kernel.errors import OperationError
from tidemill.server.app import make_app
from tidemill.server.authentication import CredentialAuthentication
from tidemill.server.oidc.outbound import OutboundClient
from tidemill.server.oidc.provider import make_provider


class SignedIn(NamedTuple):
    """A server, and the issuer that it trusts."""

    server: Served
    issuer: FakeIssuer


@pytest.fixture
async def trusting() -> AsyncIterator[SignedIn]:
    """A server that trusts an issuer on loopback."""
    async with issuing() as issuer:
        settings = {
            "oidc_issuer": issuer.url,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": CLIENT_SECRET,
            "oidc_allow_private": True,
        }
        node = tm.Node(settings=settings)
        async with node:
            provider = make_provider(node.settings, node.access.clock)
            app = make_app(node, CredentialAuthentication(node.access, provider), provider)
            async with served_app(node, app) as server:
                yield SignedIn(server, issuer)


async def me(trusting: SignedIn, token: str) -> tuple[int, dict[str, Any]]:
    """Return status and body of an answer to a token."""
    answer = await trusting.server.http.get("/me", headers={"authorization": f"Bearer {token}"})
    return answer.status_code, answer.json()


async def test_a_token_of_the_issuer_is_a_principal(trusting: SignedIn) -> None:
    """S-4: its claims say the role and the tenant."""
    status, body = await me(trusting, trusting.issuer.token())
    assert (status, body["actor"], body["tenant"], body["role"]) == (200, "oidc:ada", "public", "write")
    _, body = await me(trusting, trusting.issuer.token(tidemill_tenant="acme", tidemill_role="read"))
    assert (body["tenant"], body["role"]) == ("acme", "read")
    assert trusting.issuer.requests == ["/.well-known/openid-configuration", "/jwks_uri"]


@pytest.mark.parametrize("changes", [{"tidemill_role": None}, {"tidemill_role": "root"}, {"tidemill_tenant": "a/b"}])
async def test_a_token_without_a_role_may_do_nothing(trusting: SignedIn, changes: dict[str, Any]) -> None:
    """S-4: deny by default."""
    status, body = await me(trusting, trusting.issuer.token(**changes))
    assert (status, body["code"]) == (403, "not_allowed")


async def test_a_token_that_is_not_valid_is_refused(trusting: SignedIn) -> None:
    """S-4: issuer, audience, times, signature and algorithm."""
    issuer, now = trusting.issuer, int(time.time())  # noqa: TID251, the server's clock is the machine's
    claims = {"iss": issuer.url, "aud": CLIENT_ID, "exp": now + 300, "sub": "eve", "tidemill_role": "admin"}
    stranger = ECKey.generate_key("P-256", {"kid": issuer.key.kid})
    shared = OctKey.import_key("a secret that both sides would have to share")
    head, payload, signature = issuer.token().split(".")
    unsigned = urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    tokens = [
        issuer.token(iss="https://other.example"),
        issuer.token(aud="another program"),
        issuer.token(exp=now - 120),
        issuer.token(exp=None),
        issuer.token(nbf=now + 600),
        issuer.token(sub=None),
        jwt.encode({"alg": "ES256", "kid": issuer.key.kid}, claims, stranger),
        jwt.encode({"alg": "HS256", "kid": issuer.key.kid}, claims, shared),
        f"{head}.{payload}.",
        f"{unsigned}.{payload}.",
        f"{head}.{payload}.{signature[::-1]}",
        "a.b.c",
        "..",
    ]
    for token in tokens:
        status, body = await me(trusting, token)
        assert (status, body["code"]) == (401, "invalid_token"), token


async def test_a_new_key_of_the_issuer_is_found(trusting: SignedIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-4: by one more read, and not by one for each token with an unknown key."""
    assert (await me(trusting, trusting.issuer.token()))[0] == 200
    trusting.issuer.new_key("k2")
    for _ in range(3):
        assert (await me(trusting, trusting.issuer.token()))[0] == 401
    assert trusting.issuer.requests.count("/jwks_uri") == 1
    monkeypatch.setattr("tidemill.server.oidc.provider.KEYS_INTERVAL", 0.0)
    assert (await me(trusting, trusting.issuer.token()))[0] == 200
    assert trusting.issuer.requests.count("/jwks_uri") == 2


async def test_a_person_signs_in_at_the_issuer(trusting: SignedIn) -> None:
    """S-4: authorization code with PKCE, state and nonce; the session is one of ours."""
    async with httpx.AsyncClient(base_url=trusting.server.http.base_url) as browser:
        begun = await browser.get("/session/oidc")
        query = parse_qs(urlsplit(begun.headers["location"]).query)
        assert begun.status_code == 302
        assert begun.headers["location"].startswith(f"{trusting.issuer.url}/authorization_endpoint?")
        assert query["code_challenge_method"] == ["S256"]
        callback = {"code": trusting.issuer.sign_in(query), "state": query["state"][0]}
        done = await browser.get("/session/oidc/callback", params=callback)
        assert (done.status_code, done.headers["location"]) == (302, "/")
        assert (await browser.get("/me")).json()["actor"] == "oidc:ada"


async def test_an_attempt_belongs_to_its_browser(trusting: SignedIn) -> None:
    """Fault 93: a link with the code of another person signs no one in."""
    async with httpx.AsyncClient(base_url=trusting.server.http.base_url) as browser:
        begun = await browser.get("/session/oidc")
        query = parse_qs(urlsplit(begun.headers["location"]).query)
        code, state = trusting.issuer.sign_in(query), query["state"][0]
        for cookie, given in [("", state), (f"{state[::-1]}.n.v", state), (begun.cookies["tidemill_oidc"], "x")]:
            browser.cookies.clear()
            browser.cookies.set("tidemill_oidc", cookie)
            refused = await browser.get("/session/oidc/callback", params={"code": code, "state": given})
            assert (refused.status_code, refused.json()["code"]) == (401, "invalid_login")
            assert "tidemill_session" not in refused.cookies
        browser.cookies.clear()
        _, nonce, verifier = begun.cookies["tidemill_oidc"].split(".")
        browser.cookies.set("tidemill_oidc", f"{state}.{nonce[::-1]}.{verifier}")
        refused = await browser.get("/session/oidc/callback", params={"code": code, "state": state})
        assert (refused.status_code, refused.json()["code"]) == (401, "invalid_token")


async def test_an_issuer_that_lies_about_its_name_is_refused(trusting: SignedIn) -> None:
    trusting.issuer.document = {"issuer": "https://other.example"}
    status, body = await me(trusting, trusting.issuer.token())
    assert (status, body["code"]) == (401, "invalid_token")


async def test_an_issuer_that_fails_is_no_failure_of_the_caller(trusting: SignedIn) -> None:
    """503 with `retry-after`, and without the reason, which may name addresses of our network."""
    trusting.issuer.status = 302
    answer = await trusting.server.http.get("/session/oidc")
    assert (answer.status_code, answer.json()["code"]) == (503, "issuer_unavailable")
    assert "retry-after" in answer.headers
    assert "302" not in answer.text
    trusting.issuer.status = 200
    assert (await me(trusting, trusting.issuer.token()))[0] == 200


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://127.0.0.1:1/",
        "https://[::1]:1/",
        "https://localhost:1/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::ffff:127.0.0.1]:1/",
        "https://0.0.0.0:1/",
        "file:///etc/passwd",
        "https://",
    ],
)
async def test_no_address_leads_into_our_network(url: str) -> None:
    """Fault 87: loopback, link-local and private addresses, and other schemes."""
    with pytest.raises(OperationError, match=r"is not an https address|is not a public address|cannot be resolved"):
        await OutboundClient(allow_private=False).get(url)


async def test_a_redirect_is_not_followed(trusting: SignedIn) -> None:
    """Fault 87."""
    trusting.issuer.status = 302
    with pytest.raises(OperationError, match="answered with status 302; redirects are not followed"):
        await OutboundClient(allow_private=True).get(f"{trusting.issuer.url}/anything")
    assert trusting.issuer.requests == ["/anything"]


async def test_a_server_without_an_issuer_says_so() -> None:
    async with tm.Node() as node:
        app = make_app(node, CredentialAuthentication(node.access))
        async with served_app(node, app) as server:
            answer = await server.http.get("/session/oidc")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_issuer")
