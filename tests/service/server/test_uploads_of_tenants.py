"""Who may upload packages: code runs with the rights of the server, so a tenant needs the trust of the instance."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tests.service.server.serving_node import client_of, served
from tidemill.access.principal import Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.packages.format.archive import PackageContents, read_folder_or_archive
from tidemill.packages.format.private_key import generate_key
from tidemill.packages.format.signature import sign
from tidemill.server.authentication import CredentialAuthentication
from tidemill.storage.tables.packages import TrustedKey

FLOW = """\
import tidemill as tm

flow = tm.Workflow("flow")

@flow.task
def count() -> int:
    return 1
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)


@pytest.fixture
def flow(tmp_path: Path) -> PackageContents:
    """A package without a signature."""
    return read_folder_or_archive(package(tmp_path / "flow", FLOW))


@asynccontextmanager
async def instance(settings: Mapping[str, Any]) -> AsyncIterator[tuple[tm.Node, httpx.AsyncClient, httpx.AsyncClient]]:
    """Serve a node; yield it, a client of an admin of the instance, and one of an admin of the tenant acme."""
    node = tm.Node(settings={"load_published": True, **settings})
    async with node, served(node, CredentialAuthentication(node.access)) as server:
        await node.access.tenants.create(LOCAL_PRINCIPAL, "acme")
        keys = [await node.access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN, tenant=one) for one in ("public", "acme")]
        headers = [{"authorization": f"Bearer {one.token}"} for one in keys]
        url = server.http.base_url
        async with client_of(url, headers[0]) as ours, client_of(url, headers[1]) as theirs:
            yield node, ours, theirs


async def upload(client: httpx.AsyncClient, contents: PackageContents, **headers: str) -> httpx.Response:
    """Upload a package."""
    return await client.put("/packages/flow", content=contents.to_archive(), headers=headers, timeout=30)


async def may_upload(client: httpx.AsyncClient, **headers: str) -> bool:
    """Return what the server tells a page about uploads."""
    return bool((await client.get("/me", headers=headers)).json()["may_upload"])


async def test_an_admin_of_a_tenant_may_not_upload(flow: PackageContents) -> None:
    """S-4: the answer says who may, and which settings change it; the admin may still withdraw what it has."""
    async with instance({}) as (node, ours, theirs):
        refused = await upload(theirs, flow)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        for word in ("rights of the server", "'public'", "Tidemill-Tenant", "require_signatures", "tenant_uploads"):
            assert word in refused.json()["detail"]
        assert await node.store.packages.list_published() == []
        assert (await may_upload(ours), await may_upload(theirs)) == (True, False)
        acting = {"Tidemill-Tenant": "acme"}
        assert await may_upload(ours, **acting)
        assert (await upload(ours, flow, **acting)).status_code == 201
        assert (await theirs.get("/packages/flow")).json()["state"] == "loaded"
        assert (await upload(theirs, flow)).status_code == 403
        assert (await theirs.delete("/packages/flow")).status_code == 204


async def test_a_setting_lets_tenants_upload(flow: PackageContents) -> None:
    """S-4: `tenant_uploads`, for tenants that the operator trusts like the server itself."""
    async with instance({"tenant_uploads": True}) as (_, _, theirs):
        assert await may_upload(theirs)
        assert (await upload(theirs, flow)).status_code == 201


async def test_a_tenant_uploads_what_a_key_of_the_instance_signed(flow: PackageContents) -> None:
    """S-4: only who has the store can trust a key, so the signature is the trust of the instance."""
    author, stranger = generate_key("author"), generate_key("stranger")
    async with instance({"require_signatures": True}) as (node, _, theirs):
        at = node.access.clock.now()
        trusted = TrustedKey(tenant="acme", id=author.public.id, text=str(author.public), at=at)
        await node.store.trusted_keys.add(trusted)
        assert await may_upload(theirs)
        for contents, code in ((flow, "unsigned_package"), (sign(flow, stranger), "unknown_key")):
            refused = await upload(theirs, contents)
            assert (refused.status_code, refused.json()["code"]) == (403, code)
        assert (await upload(theirs, sign(flow, author))).status_code == 201
