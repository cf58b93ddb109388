"""`/health/live` and `/health/ready`: whether the process answers, and whether it should get requests."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.samples import single
from tests.service.server.serving_node import Served, served
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.kernel.errors import StoreError
from tidemill.packages.reconcile.decision import DesiredPackage
from tidemill.packages.reconcile.folder import FolderSource
from tidemill.packages.reconcile.registry import RegistrySource
from tidemill.packages.status import PackageKey
from tidemill.server import readiness
from tidemill.server.readiness import CHECKS, check_readiness


async def ready(server: Served) -> tuple[int, dict[str, Any]]:
    """Return the status of the answer, and the reasons of what is not well."""
    answer = await server.http.get(f"{server.url}/health/ready")
    checks = answer.json()["checks"]
    assert [one["name"] for one in checks] == list(CHECKS)
    assert all(one["ok"] is not bool(one["reason"]) for one in checks)
    return answer.status_code, {one["name"]: one["reason"] for one in checks if not one["ok"]}


async def test_a_node_that_is_well_is_ready(tmp_path: Path) -> None:
    """Ops."""
    async with tm.Node(f"sqlite:///{tmp_path}/tidemill.db", load=single().load) as node, served(node) as server:
        assert (await server.http.get(f"{server.url}/health/live")).status_code == 200
        assert await ready(server) == (200, {})


async def test_a_store_that_is_away_is_the_part_that_is_not_ready(
    own_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Ops: 503 with the part and the reason; the process is alive; ready again when the store is back.

    Anyone may ask, so only the log says where the store is.
    """
    async with tm.Node(await own_postgres.fresh_store()) as node, served(node) as server:
        assert await ready(server) == (200, {})
        own_postgres.stop("immediate")
        status, reasons = await ready(server)
        assert status == 503
        assert reasons.keys() >= {"store", "schema"}
        assert "password" not in str(reasons)
        assert f":{own_postgres.port}" not in str(reasons)
        logged = [one.getMessage() for one in caplog.records if one.name == readiness.__name__]
        assert f":{own_postgres.port}" in str(logged)
        assert (await server.http.get(f"{server.url}/health/live")).status_code == 200
        own_postgres.start()
        async with asyncio.timeout(20):
            while (await ready(server))[0] != 200:
                pass


async def test_a_store_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe has a deadline of its own: the answer must come before it."""
    monkeypatch.setattr(readiness, "STORE_DEADLINE", 0.05)
    async with tm.Node() as node, served(node) as server:
        monkeypatch.setattr(node.store.leases, "current", lambda _: asyncio.Event().wait())
        assert await ready(server) == (503, {"store": "the store has not answered within 0.05 s"})


async def test_another_schema_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer Tidemill has migrated the store while this server runs."""
    async with tm.Node() as node, served(node) as server:

        async def read() -> tuple[int, int]:
            return 99, 12

        monkeypatch.setattr(node.store, "read_schema_state", read)
        reason = "the store has schema version 99, and this server needs version 12"
        assert await ready(server) == (503, {"schema": reason})


async def test_a_store_without_a_leader_is_reported_and_served() -> None:
    """Pushes and reads work without a leader; only runs are not planned."""
    async with tm.testing.node() as node:
        await node.store.leases.release(LEASE_NAME, 1)
        found = await check_readiness(node)
        (leader,) = [one for one in found.checks if one.name == "leader"]
        assert (found.status, leader.ok, leader.reason) == ("ready", False, "no node leads: no run is planned")
        await node.store.leases.acquire(LEASE_NAME, "another", 3.0)
        node.clock.advance_to(node.clock.monotonic() + 60)
        (leader,) = [one for one in (await check_readiness(node)).checks if one.name == "leader"]
        assert leader.reason == "the leader has been silent for 57 s"


async def test_failed_reactors_and_packages_are_reported_without_names(tmp_path: Path) -> None:
    """S-5: anyone may ask, so no name of a tenant is in the answer; others' requests are still served."""
    (tmp_path / "broken.py").write_text("import tidemill as tm\nraise ValueError('secret')\n")
    async with tm.testing.node(load=single().load, settings={"component_max_failures": 1}) as node:
        await node.break_reactor("r")
        reconciler = await node.watch_folder(tmp_path)
        await reconciler.wait_until_settled()
        found = await check_readiness(node)
        reasons = {one.name: one.reason for one in found.checks if not one.ok}
    assert found.status == "ready"
    assert reasons == {
        "packages": "1 could not be loaded or removed: see GET /api/v1/packages",
        "reactors": "1 failed, and must be restarted by an operator: see GET /api/v1/reactors",
    }


async def test_a_node_that_is_closed_is_not_ready() -> None:
    """A load balancer sends it nothing more."""
    async with tm.Node() as node:
        pass
    found = await check_readiness(node)
    assert found.status == "not_ready"
    assert found.checks[0].reason == "the node is shutting down"


async def test_a_source_that_cannot_be_read_is_reported_and_the_server_stays_in_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ops: also before the first pass."""

    async def refuse(self: FolderSource) -> None:
        raise OSError("secret")

    async with tm.testing.node() as node:
        with monkeypatch.context() as patch:
            patch.setattr(FolderSource, "desired_packages", refuse)
            reconciler = await node.watch_folder(tmp_path)
            await node.advance("1ms")
            assert "secret" in reconciler.source_error
            found = await check_readiness(node)
        await node.advance("1m")
        await reconciler.wait_until_settled()
        after = await check_readiness(node)
    assert [one.status for one in (found, after)] == ["ready", "ready"]
    reasons = {one.name: one.reason for one in found.checks if not one.ok}
    assert reasons == {"packages": "it cannot be read which are wanted: see the log"}
    assert all(one.ok for one in after.checks)


@pytest.mark.parametrize("failures", [1, 1_000_000])
async def test_a_server_is_not_ready_before_it_has_read_the_registry(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ops: the store may be away for a moment, and then nothing is loaded; after a minute it is only reported."""
    read, failed = RegistrySource.desired_packages, 0

    async def fail_first(self: RegistrySource) -> Mapping[PackageKey, DesiredPackage]:
        nonlocal failed
        failed += 1
        if failed <= failures:
            raise StoreError("the store is away")
        return await read(self)

    monkeypatch.setattr(RegistrySource, "desired_packages", fail_first)
    async with tm.testing.node() as node:
        reconciler = await node.probe.packages.watch_registry()
        await node.advance("1ms")
        assert "away" in reconciler.source_error
        found = await check_readiness(node)
        assert found.status == "not_ready"
        assert [one.reason for one in found.checks if one.essential and not one.ok] == [
            "it was not read yet which are wanted"
        ]
        await node.advance("59s")
        assert (await check_readiness(node)).status == ("ready" if failures == 1 else "not_ready")
        await node.advance("2s")
        assert (await check_readiness(node)).status == "ready"
