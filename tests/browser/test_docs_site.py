"""The documentation site that a node serves: searchable, accessible, in dark and light, and from this server alone."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import violations
from tests.browser.conftest import ARTIFACTS
from tests.browser.demo_node import DemoNode
from tests.browser.test_look import SIZES

PAGES = {
    "start": "/docs/",
    "tutorial": "/docs/tutorials/first-package.html",
    "table": "/docs/reference/http.html",
    "code": "/docs/reference/python/testing.html",
    "drawings": "/docs/explanation/overview.html",
}


@pytest.fixture(params=[(theme, size) for theme in ("light", "dark") for size in SIZES], ids="-".join, scope="module")
def screen(browser: Browser, request: pytest.FixtureRequest) -> Iterator[tuple[Page, str]]:
    """Return a tab with a theme and a size, and the name of both."""
    theme, size = request.param
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    yield context.new_page(), f"{theme}-{size}"
    context.close()


@pytest.mark.parametrize(("name", "path"), PAGES.items())
def test_a_page_is_accessible_and_fits(screen: tuple[Page, str], node: DemoNode, name: str, path: str) -> None:
    """S-9: axe finds no violation, and wide tables and drawings scroll by themselves."""
    page, kind = screen
    page.goto(node.url + path, wait_until="networkidle")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"docs-{name}-{kind}.png")
    assert violations(page) == []
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), "the page scrolls sideways"


def test_the_search_leads_to_a_page(page: Page, node: DemoNode) -> None:
    """The browser searches by itself, below /docs, with the content security policy of the server."""
    page.goto(f"{node.url}/docs/tutorials/first-steps.html")
    page.get_by_placeholder("Search").click()
    page.get_by_placeholder("Search").press_sequentially("fencing")
    page.locator(".md-search-result__link", has_text="Glossary").first.click()
    expect(page).to_have_url(re.compile(r"/docs/reference/glossary\.html"))


def test_everything_comes_from_the_server(page: Page, node: DemoNode) -> None:
    """No page asks another host for anything, and nothing is missing."""
    addresses, missing = list[str](), list[str]()
    page.on("request", lambda request: addresses.append(request.url))
    page.on("response", lambda response: missing.append(response.url) if response.status >= 400 else None)
    for path in PAGES.values():
        page.goto(node.url + path, wait_until="networkidle")
    assert len(addresses) > len(PAGES)
    assert [one for one in addresses if not one.startswith((node.url, "data:"))] == []
    assert missing == []


def test_drawings_follow_the_chosen_colours(page: Page, node: DemoNode) -> None:
    """The reader's choice wins over the colours of the system."""
    page.goto(node.url + PAGES["drawings"])
    text = page.locator(".drawing text").first
    before = text.evaluate("element => getComputedStyle(element).fill")
    for current in ("as the system", "light"):
        page.get_by_title(f"Colours: {current}").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert text.evaluate("element => getComputedStyle(element).fill") != before


@pytest.mark.expects_errors  # the browser logs the status
def test_an_address_without_a_page_leads_back(page: Page, node: DemoNode) -> None:
    """The answer is a page with a link to the start, not a problem for programs."""
    answer = page.goto(f"{node.url}/docs/tutorials/no-such-page.html")
    assert answer is not None
    assert answer.status == 404
    page.get_by_role("link", name="Start of the documentation").click()
    expect(page.get_by_role("heading", name="Events in, decisions out")).to_be_visible()
