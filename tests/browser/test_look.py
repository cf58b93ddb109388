"""Every page, dark and light, wide and narrow: accessible, within the screen, and kept as a picture (S-9)."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

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
    """Return the address of a page; one about a run is about one that has ended."""
    return node.url + (path.replace("{run}", ended_run(node)) if "{run}" in path else path)


def ended_run(node: DemoNode) -> str:
    """Return the newest run that has ended; wait for the first one."""
    with (
        httpx.Client(base_url=f"{node.url}/api/v1", timeout=20) as api,
        api.stream("GET", "/events", params={"types": "run.ended"}, headers={"accept": "text/event-stream"}) as events,
    ):
        runs = api.get("/runs", params={"state": ["success", "failed"], "limit": 1}).json()["items"]
        if not runs:
            next(line for line in events.iter_lines() if line.startswith("data:"))
            return ended_run(node)
        run: str = runs[0]["id"]
        return run


@pytest.mark.parametrize(("name", "path"), (PAGES | DETAILS).items())
def test_a_page_is_accessible_and_fits(screen: tuple[Page, str], node: DemoNode, name: str, path: str) -> None:
    """S-9: axe finds no violation, and nothing makes the page scroll sideways."""
    page, kind = screen
    open_page(page, address_of(node, path))
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{name}-{kind}.png")
    assert violations(page) == []
    for part in ("html", "main"):
        assert page.evaluate(f"document.querySelector('{part}').scrollWidth") <= page.viewport_size["width"], part  # type: ignore[index]


@pytest.mark.parametrize("path", ["/runs/{run}", "/reactors/market"])
def test_a_graph_seen_from_afar_is_accessible(screen: tuple[Page, str], node: DemoNode, path: str) -> None:
    """S-9: a node has a name also where its content is too small to be drawn."""
    page, _ = screen
    open_page(page, address_of(node, path))
    zoom_out = page.get_by_role("button", name="Zoom Out")
    while zoom_out.is_enabled():
        zoom_out.click()
    page.locator("[data-outline]").first.wait_for()
    assert violations(page) == []


def test_the_font_comes_with_the_package(page: Page, node: DemoNode) -> None:
    """UD, section 6: pages look the same on every system, nothing is loaded from outside, and the licence is there."""
    fonts: list[str] = []
    page.on("request", lambda request: fonts.append(request.url) if request.resource_type == "font" else None)
    open_page(page, node.url)
    page.wait_for_function("document.fonts.check('13px \"Inter Variable\"')")
    assert fonts
    assert all(one.startswith(node.url) for one in fonts)
    assert "SIL Open Font License" in httpx.get(f"{node.url}/licences/inter.txt").text


def test_code_is_highlighted(page: Page, node: DemoNode) -> None:
    """UD, section 6: keywords, texts and comments of Python have colours."""
    open_page(page, f"{node.url}/reactors/market?tab=source")
    code = page.locator("pre").first
    expect(code.locator("[data-kind=keyword]").first).to_be_visible()
    expect(code.locator("[data-kind=name]").first).to_be_visible()
    assert violations(page) == []
