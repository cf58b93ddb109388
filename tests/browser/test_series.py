"""Rates and plots arrive filled, and stand still without a server (UD-5, UD-20)."""

import re

import httpx
import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.demo_node import DemoNode
from tests.browser.views import open_page

SHOWN = "() => [...document.querySelectorAll('tr,li')].find(one => /^market/.test(one.textContent))?.textContent"
RECORD_RATES = f"""
  window.rates = [];
  new MutationObserver(() => {{
    const found = /[\\d.]+\\/s/.exec(({SHOWN})() ?? "");
    if (found !== null) window.rates.push(found[0]);
  }}).observe(document, {{ subtree: true, childList: true, characterData: true }});
"""
POINTS = "line => line.getAttribute('points').split(' ').length"


@pytest.fixture
def known(node: DemoNode, page: Page) -> int:
    """Return how many seconds of the reactor `market` the server knows, once there are some."""
    page.add_init_script(RECORD_RATES)
    for _ in range(100):
        values = httpx.get(f"{node.url}/api/v1/series/firings").json()["values"].get("market", [])
        if (seconds := sum(value is not None for value in values)) >= 5:
            return seconds
        page.wait_for_timeout(100)
    raise AssertionError("the node keeps no history")


@pytest.mark.parametrize("path", ["", "/reactors"])
def test_rates_and_sparklines_arrive_filled(page: Page, node: DemoNode, known: int, path: str) -> None:
    """UD-5: the first rate that is painted is the true one, and the sparkline has what the server knows."""
    open_page(page, node.url + path)
    line = page.get_by_role("img", name="Firings of market in the last minute").locator("polyline")
    expect(line).to_be_visible()
    page.wait_for_function("window.rates.length > 0")
    assert line.evaluate(POINTS) >= known - 2
    assert "0/s" not in page.evaluate("window.rates")


def test_the_page_of_a_reactor_has_its_rates_and_plots_at_once(page: Page, node: DemoNode, known: int) -> None:
    """UD-5: the rate of the head, and plots of time that passed before the page was opened."""
    open_page(page, f"{node.url}/reactors/market?tab=latency")
    rate = page.locator("dl[aria-label=Figures] > div").filter(has_text="Rate").locator("dd")
    expect(rate).not_to_have_text("0/s", timeout=2_000)
    expect(page.get_by_role("img", name="p50 and p99 of the duration of firings")).to_be_visible()
    expect(page.get_by_role("img", name="Firings per second")).to_be_visible()
    page.get_by_role("button", name="1 day").click()
    expect(page.get_by_role("heading", name="Firings per minute")).to_be_visible()
    expect(page).to_have_url(re.compile("range=1d"))
    assert known > 0


def test_the_system_page_has_plots_at_once(page: Page, node: DemoNode, known: int) -> None:
    """UD-5: the series of the server, for a quarter of an hour, an hour or a day."""
    with page.expect_response("**/api/v1/system/series?seconds=900") as answer:
        open_page(page, f"{node.url}/system")
    values = answer.value.json()["values"]
    assert sum(value is not None for value in values["firings"]) >= known - 2
    for title in ("Events and firings", "Duration of a firing", "Active runs and dispatch queue", "Scheduler"):
        expect(page.get_by_role("img", name=title)).to_be_visible()
    with page.expect_response("**/api/v1/system/series?seconds=3600"):
        page.get_by_role("button", name="1 hour").click()


@pytest.mark.expects_errors
def test_without_a_server_rates_stand_still(page: Page, node: DemoNode, known: int) -> None:
    """UD-20: the last known rate stays, and the badge is grey."""
    feeds: list[WebSocketRoute] = []

    def connect(feed: WebSocketRoute) -> None:
        if feeds:
            feed.close()
        else:
            feed.connect_to_server()
            feeds.append(feed)

    page.route_web_socket(re.compile("/ws/events"), connect)
    open_page(page, f"{node.url}/reactors")
    rate = page.get_by_role("row", name=re.compile("^market")).get_by_role("cell").nth(2)
    expect(rate).to_have_text(re.compile("[1-9]"))
    feeds[0].close()
    expect(page.get_by_text("Reconnecting")).to_be_visible()
    badge = page.get_by_text("live", exact=True).first
    expect(badge).to_have_css("filter", "grayscale(1)")
    page.evaluate("window.rates = []")
    last = rate.inner_text()
    page.wait_for_timeout(2500)  # it would have fallen by half
    assert known > 0
    assert set(page.evaluate("window.rates")) <= {last}
    assert rate.inner_text() == last
