"""`/metrics`: every metric of the node and the server, in the formats of Prometheus."""

from collections.abc import AsyncIterator

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

import tidemill as tm
from tests.service.samples import raising, single
from tests.service.server.serving_node import Served, served
from tests.service.server.workflow_samples import make_report
from tidemill.access.principal import Principal, Role
from tidemill.server.exposition import METRICS, PREFIX, render_metrics
from tidemill.server.requests import Authenticator
from tidemill.telemetry.metrics import Sample, sample_parts


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a reactor that fails for 13."""
    sample = single(raising(when=lambda value: value == 13))
    async with tm.Node(load=sample.load) as node, served(node) as one:
        yield one


async def scrape(server: Served) -> dict[str, Metric]:
    """Return the metrics by name, without the prefix."""
    answer = await server.http.get(f"{server.url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = list(text_string_to_metric_families(answer.text))
    assert all(family.name.startswith(PREFIX) for family in families)
    return {family.name.removeprefix(PREFIX): family for family in families}


def value(families: dict[str, Metric], sample: str, **labels: str) -> float:
    """Return the one value with these labels."""
    (found,) = [
        one.value
        for family in families.values()
        for one in family.samples
        if one.name == PREFIX + sample and labels.items() <= one.labels.items()
    ]
    return found


async def test_every_metric_is_there_with_its_type_and_help(server: Served) -> None:
    """Ops: names as in the design, prefixed tidemill_; one that never rose is 0 unless it has labels."""
    families = await scrape(server)
    assert set(families) == {one.name.removesuffix("_total") for one in METRICS}
    assert {PREFIX + one.name.removesuffix("_total"): one.help for one in METRICS} == {
        family.name: family.documentation for family in families.values()
    }
    types = {name: families[name].type for name in families}
    assert (types["runs"], types["runs_active"], types["push_seconds"]) == ("counter", "gauge", "summary")
    assert (types["dispatch_latency_seconds"], types["http_request_duration_seconds"]) == ("histogram", "histogram")
    assert value(families, "orphan_reaped") == value(families, "claims_total") == 0


async def test_counters_of_ended_runs_begin_at_zero_for_each_workflow(sqlite: str) -> None:
    """An alert on the increase of failed runs fires for the first one too."""
    async with tm.Node(sqlite, load=[make_report()]) as node, served(node) as server:
        families = await scrape(server)
        samples = {(one.labels["workflow"], one.labels["state"]): one.value for one in families["runs"].samples}
    assert samples == dict.fromkeys([("report", "success"), ("report", "failed"), ("report", "cancelled")], 0.0)


async def test_reactors_and_accumulators_have_their_tenant(server: Served) -> None:
    """graphs.md, Metrics."""
    for event in (1, 13, "x"):
        await server.node.push("a", event)
    families = await scrape(server)
    reactor = {"reactor": "r", "tenant": "public"}
    assert value(families, "reactor_fires_total", **reactor) == 2
    assert value(families, "reactor_fire_failures_total", **reactor) == 1
    assert value(families, "reactor_health", **reactor) == 1
    assert value(families, "dead_letters_total", **reactor) == 1
    assert value(families, "dead_letters_total", accumulator="a", tenant="public") == 1
    assert value(families, "push_seconds_count", accumulator="a") == 3
    assert 0 < value(families, "reactor_firing_seconds", quantile="0.5", **reactor) < 10


async def test_requests_are_counted_by_route_not_by_path(server: Served) -> None:
    """A path in a label would grow without limit."""
    await server.http.get("/version")
    await server.http.get("/version")
    await server.http.get("/nothing/17")
    families = await scrape(server)
    labels = {"method": "GET", "route": "/api/v1/version"}
    assert value(families, "http_requests_total", status="200", **labels) == 2
    assert value(families, "http_requests_total", status="404", route="unmatched") == 1
    assert value(families, "http_request_duration_seconds_count", **labels) == 2
    assert value(families, "http_request_duration_seconds_bucket", le="+Inf", **labels) == 2
    assert value(families, "uptime_seconds") > 0
    assert value(families, "build_info", version=tm.__version__) == 1


async def test_open_metrics_are_served_to_clients_that_ask(server: Served) -> None:
    """Prometheus asks for OpenMetrics by default."""
    headers = {"accept": "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"}
    answer = await server.http.get(f"{server.url}/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    assert {family.name for family in parse_openmetrics(answer.text)} >= {"tidemill_runs", "tidemill_build_info"}


async def test_counts_of_a_reactor_that_came_back_are_one_series() -> None:
    """G-29: a counter never falls, and no series is there twice."""
    sample = single()
    async with tm.Node(load=sample.load) as node, served(node) as server:
        await node.push("a", 1)
        await node.unload("graph:g")
        await node.unload("reactor:r")
        await node.load(sample.reactor)
        await node.load(sample.graph)
        await node.push("a", 2)
        assert value(await scrape(server), "reactor_fires_total") == 2


class OneKey(Authenticator):
    """Every request comes from one principal."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    async def authenticate(self, connection: object, /) -> Principal:
        return self._principal


async def test_a_tenant_does_not_see_the_names_of_others() -> None:
    """S-5."""
    async with tm.Node() as node:
        for tenant in ("acme", "beta"):
            await node.load(single().reactor, tenant=tenant)
        reader = Principal(tenant="acme", actor="key:1", role=Role.READ)
        async with served(node, OneKey(reader)) as server:
            page = (await server.http.get(f"{server.url}/metrics")).text
    assert 'tenant="acme"' in page
    assert "beta" not in page


async def test_samples_have_no_labels_but_the_listed_ones(server: Served) -> None:
    """The list of labels decides which metrics are 0 from the start."""
    for event in (1, 13, "x"):
        await server.node.push("a", event)
    await server.http.get("/nothing")
    parts = sample_parts(METRICS)
    for sample in server.node.metrics_registry.samples():
        assert {name for name, _ in sample.labels} - {"le"} <= set(parts[sample.name].metric.labels), sample


def test_values_of_labels_are_escaped() -> None:
    """A name may hold quotes, backslashes and line breaks."""
    page = render_metrics([Sample("runs_total", 3, (("state", 'a"b\\c\nd'),))]).content.decode()
    assert 'tidemill_runs_total{state="a\\"b\\\\c\\nd"} 3.0\n' in page
