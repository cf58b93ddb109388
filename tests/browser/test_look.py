"""Every page, dark and light, wide and narrow: accessible, within the screen, and kept as a picture (S-9)."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.browser.axe import violations
from tests.browser.conftest import ARTIFACTS
from tests.browser.demo_node import DemoNode
from tests.browser.views import PAGES, open_page

SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
DETAILS = {
    "reactor": "/reactors/market",
    "reactor-latency": "/reactors/market?tab=latency",
    "reactor-cache": "/reactors/market?tab=cache",
    "reactor-accumulator": "/reactors/market?select=pricing",
    "reactor-dead-letters": "/reactors/market?tab=dead-letters",
    "workflow": "/workflows/nightly_report",
    "package": "/packages/nightly_report",
    "run": "/runs/{run}",
}


@pytest.fixture(params=[(theme, size) for theme in ("light", "dark") for size in SIZES], ids="-".join, scope="module")
def screen(browser: Browser, request: pytest.FixtureRequest) -> Iterator[tuple[Page, str]]:
    """Return a tab with a theme and a size, and the name of both."""
    theme, size = request.param
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    page.set_default_timeout(15_000)
    yield page, f"{theme}-{size}"
    context.close()


def address_of(node: DemoNode, path: str) -> str:
    """Return the address of a page; one about a run is about the newest one that has ended."""
    if "{run}" in path:
        ended = httpx.get(f"{node.url}/api/v1/runs", params={"state": ["success", "failed"], "limit": 1}).json()
        path = path.replace("{run}", ended["items"][0]["id"])
    return node.url + path


@pytest.mark.parametrize(("name", "path"), (PAGES | DETAILS).items())
def test_a_page_is_accessible_and_fits(screen: tuple[Page, str], node: DemoNode, name: str, path: str) -> None:
    """S-9: axe finds no violation, and nothing makes the page scroll sideways."""
    page, kind = screen
    open_page(page, address_of(node, path))
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{name}-{kind}.png")
    assert violations(page) == []
    for part in ("html", "main"):
        assert page.evaluate(f"document.querySelector('{part}').scrollWidth") <= page.viewport_size["width"], part
