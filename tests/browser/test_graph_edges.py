"""The graph of a reactor is whole on every load: React Flow draws no edge to a node that it has not measured (S-9)."""

import os
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page

from tests.browser.demo_node import DemoNode, demo_node, wait_for_reactor
from tests.browser.views import open_page

LOADS = int(os.environ.get("TIDEMILL_TEST_GRAPH_LOADS", "12"))
LOOKS = 5
COUNT = """() => ({
  nodes: document.querySelectorAll(".react-flow__node").length,
  edges: document.querySelectorAll(".react-flow__edge-path").length,
  labels: [...document.querySelectorAll(".react-flow__edge-text")].filter((text) => text.textContent).length,
})"""


@pytest.fixture(scope="module")
def market_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoNode]:
    """Return a node with the examples, whose reactor `market` fires several times a second."""
    folder = tmp_path_factory.mktemp("market")
    with demo_node(folder) as node, httpx.Client(base_url=f"{node.url}/api/v1") as api:
        wait_for_reactor(api, "market")
        yield node


def drawn_edges(node: DemoNode) -> int:
    """Return how many edges the page draws: one per accumulator, per node that reads inputs, and per node it reads."""
    with httpx.Client(base_url=f"{node.url}/api/v1") as api:
        accumulators = api.get("/reactors/market").json()["accumulators"]
        nodes = api.get("/graphs/market_maker").json()["nodes"]
    read = [{i["source"] if i["origin"] == "node" else "" for i in node["inputs"]} for node in nodes]
    return len(accumulators) + sum(map(len, read))


def test_no_edge_is_lost_while_the_graph_lives(page: Page, market_node: DemoNode) -> None:
    """UD-1: with a slow processor, every look at every load finds all edges and their labels."""
    edges = drawn_edges(market_node)
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
    for load in range(LOADS):
        open_page(page, f"{market_node.url}/reactors/market")
        page.wait_for_function("document.querySelectorAll('.react-flow__node').length > 3")
        for look in range(LOOKS):
            page.wait_for_timeout(200)
            seen = page.evaluate(COUNT)
            assert seen["edges"] == edges, f"load {load}, look {look}: {seen}"
            assert seen["labels"] == edges, f"load {load}, look {look}: {seen}"
