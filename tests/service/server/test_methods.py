"""HEAD and OPTIONS on every path, and the headers that every answer has."""

from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, client_of, served
from tidemill.server.route_table import ROUTES

STREAM = "/api/v1/events"
PLAIN_PATHS = sorted({route.path for route in ROUTES if route.method == "GET" and "{" not in route.path} - {STREAM})


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node without authentication; paths begin at the root."""
    async with tm.Node() as node, served(node) as one, client_of(one.url) as http:
        yield one._replace(http=http)


async def test_head_is_answered_wherever_get_is(server: Served) -> None:
    """RFC 9110: the same head, without a body; probes use it."""
    for path in PLAIN_PATHS:
        expected, head = await server.http.get(path), await server.http.head(path)
        assert (path, head.status_code, head.content) == (path, expected.status_code, b"")
        assert set(head.headers) == set(expected.headers), path
        assert path != "/health/live" or head.headers["content-length"] == expected.headers["content-length"]


async def test_the_head_of_a_stream_is_answered_and_the_stream_ends(server: Served) -> None:
    """No reader is left behind."""
    for path in (STREAM, "/api/v1/audit"):
        head = await server.http.head(path, headers={"accept": "text/event-stream"})
        assert (head.status_code, head.content) == (200, b"")
    assert server.node.event_feed.reader_count == 0


async def test_head_needs_the_key_that_get_needs(server: Served) -> None:
    """A wrong name is not found either, and changes have no head."""
    assert (await server.http.head("/api/v1/runs/unknown")).status_code == 404
    refused = await server.http.head("/api/v1/secrets/rotate")
    assert (refused.status_code, refused.headers["allow"]) == (405, "OPTIONS, POST")


async def test_options_names_the_methods(server: Served) -> None:
    """The path itself says what it takes; no other site gets more than that."""
    for path, allow in [
        ("/health/live", "GET, HEAD, OPTIONS"),
        ("/api/v1/variables/region", "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("/api/v1/secrets/rotate", "OPTIONS, POST"),
    ]:
        answer = await server.http.options(path, headers={"origin": "https://evil.example"})
        assert (answer.status_code, answer.headers["allow"], answer.content) == (204, allow, b"")
        assert not [name for name in answer.headers if name.startswith("access-control")]
    refused = await server.http.post("/health/live")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_every_answer_says_that_its_type_is_right(server: Served) -> None:
    """Browsers must not guess it; errors, pages and metrics too."""
    for path in [
        "/api/v1/runs",
        "/api/v1/unknown",
        "/metrics",
        "/",
        "/api/docs",
        "/health/live",
        "/api/v1/openapi.json",
    ]:
        answer = await server.http.get(path)
        assert (path, answer.headers.get_list("x-content-type-options")) == (path, ["nosniff"])


async def test_no_other_site_shows_the_page_of_the_api(server: Served) -> None:
    """As for the web UI."""
    policy = (await server.http.get("/api/docs")).headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
async def test_metrics_name_their_charset_once(server: Served, accept: str) -> None:
    """Strict clients refuse a parameter that comes twice."""
    content_type = (await server.http.get("/metrics", headers={"accept": accept})).headers["content-type"]
    assert content_type.startswith(accept.partition(";")[0])
    assert content_type.count("charset=utf-8") == 1
