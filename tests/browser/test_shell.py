"""What is around every page: navigation, connection, theme, keyboard (S-8, S-9)."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.architecture.sources import ROOT
from tests.browser.demo_node import DemoNode
from tests.browser.views import PAGES, open_page

ROUTE = re.compile(r'page\("(?P<path>[^"$]*)"')


@pytest.mark.parametrize(("name", "path"), PAGES.items())
def test_every_page_opens_by_its_address(page: Page, node: DemoNode, name: str, path: str) -> None:
    """S-8: a deep link leads to each page, and the page is live."""
    open_page(page, node.url + path)
    expect(page.get_by_role("heading", level=1)).to_contain_text(name, ignore_case=True)


def test_every_page_is_looked_at() -> None:
    """A page that is missing from the list would have neither a picture nor a check of accessibility."""
    routes = (ROOT / "ui/src/app/routes.tsx").read_text(encoding="utf-8")
    assert {found["path"] for found in ROUTE.finditer(routes)} - {""} == set(PAGES.values())


def test_the_command_palette_leads_to_a_workflow(page: Page, node: DemoNode) -> None:
    """S-9: everything is reachable by keyboard."""
    page.goto(node.url)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("nightly")
    expect(page.get_by_role("option", name="nightly_report workflow")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{node.url}/workflows/nightly_report")


def test_keys_lead_to_pages_and_explain_themselves(page: Page, node: DemoNode) -> None:
    """S-9: `g w` opens the workflows, `?` lists the shortcuts, `t` changes the theme."""
    page.goto(node.url)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", level=1, name="Workflows")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
