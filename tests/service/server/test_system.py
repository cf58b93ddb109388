"""The system over HTTP: build, leader, store, retention, settings and metrics."""

from pathlib import Path
from typing import Any

import tidemill as tm
from tests.service.server.graph_samples import market
from tests.service.server.serving_node import client_of, served
from tests.service.server.workflow_samples import finish, make_report
from tidemill import __version__
from tidemill.access.principal import Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.server.authentication import CredentialAuthentication


async def test_an_admin_sees_the_store_the_settings_and_the_process(sqlite: str, tmp_path: Path) -> None:
    """S-8: system (storage, retention)."""
    settings = {
        "retention": "30d",
        "secret_keys": "1:c2VjcmV0",
        "nats_servers": "nats://ada:hunter2@queue:4222",
        "tenant_retention": {"acme": "7d"},
    }
    async with tm.Node(sqlite, load=[make_report()], settings=settings) as node, served(node) as server:
        await finish(server, day="1", rows=3)
        answer = await server.http.get("/system")
        found: dict[str, Any] = answer.json()
    assert found["version"] == __version__
    assert (found["leader"]["id"], found["leader"]["is_this_node"]) == (found["node"], True)
    assert found["leader"]["epoch"] >= 1
    assert (found["retention"]["runs"], found["retention"]["last_pass_at"]) == (30 * 86400, None)
    store = found["instance"]["store"]
    assert store["kind"] == "sqlite"
    assert str(tmp_path) in store["title"]
    assert store["bytes"] > 10_000
    rows = {one["what"]: (one["number"], one["exact"]) for one in store["rows"]}
    assert (rows["runs"], rows["task runs"], rows["workflow versions"]) == ((1, True), (5, True), (1, True))
    shown = {one["name"]: (one["value"], one["is_default"]) for one in found["instance"]["settings"]}
    assert shown["retention"] == (30 * 86400, False)
    assert shown["lease_ttl"] == (3.0, True)
    assert "c2VjcmV0" not in answer.text
    assert "hunter2" not in answer.text
    assert found["instance"]["process"]["memory"] > 1_000_000
    assert found["instance"]["process"]["cpu_seconds"] > 0


async def test_a_tenant_sees_nothing_of_the_instance() -> None:
    """S-5: neither the store, nor the settings, nor the metrics of others."""
    async with (
        tm.Node(load=market(), settings={"tenant_retention": {"acme": "7d"}}) as node,
        served(node, CredentialAuthentication(node.access)) as server,
    ):
        await node.access.tenants.create(LOCAL_PRINCIPAL, "acme")
        await node.push("orderbook", {"bid": 1})
        for tenant, is_instance, events in (("acme", False, 0), ("public", True, 1)):
            key = (await node.access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN, tenant=tenant)).token
            async with client_of(server.http.base_url, {"authorization": f"Bearer {key}"}) as http:
                system, metrics = (await http.get("/system")).json(), (await http.get("/system/metrics")).json()
            assert (system["instance"] is not None) is is_instance
            assert system["retention"]["runs"] == (7 if tenant == "acme" else 90) * 86400
            assert metrics["values"]["accumulator_events_total"] == events
            assert metrics["values"]["uptime_seconds"] > 0


async def test_a_pass_of_the_retention_is_shown() -> None:
    """S-8: when old runs were last deleted, and how many."""
    async with tm.testing.node(load=[make_report()], settings={"retention": "1h"}) as node:
        client = node.workflow_client
        run = await node.start("report", day="1")
        await run.wait()
        assert client.nodes.last_prune() is None
        await node.advance("2h")
        found = client.nodes.last_prune()
        assert found is not None
        assert found.deleted == 1
