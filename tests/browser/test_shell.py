"""What is around every page: navigation, connection, theme, keyboard (S-8, S-9)."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.demo_node import DemoNode

PAGES = {
    "/": "Home",
    "/reactors": "Reactors",
    "/workflows": "Workflows",
    "/runs": "Runs",
    "/schedules": "Schedules",
    "/triggers": "Triggers",
    "/backfills": "Backfills",
    "/packages": "Packages",
    "/nodes": "Nodes",
    "/pools": "Pools",
    "/variables": "Variables",
    "/secrets": "Secrets",
    "/tenants": "Tenants",
    "/keys": "Keys",
    "/accounts": "Accounts",
    "/audit": "Audit log",
    "/system": "System",
}


@pytest.mark.parametrize(("path", "title"), PAGES.items())
def test_every_page_opens_by_its_address(page: Page, node: DemoNode, path: str, title: str) -> None:
    """S-8: a deep link leads to each page, and the page is live."""
    page.goto(node.url + path)
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def test_the_command_palette_leads_to_a_workflow(page: Page, node: DemoNode) -> None:
    """S-9: everything is reachable by keyboard."""
    page.goto(node.url)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("nightly")
    expect(page.get_by_role("option", name="nightly_report")).to_be_visible()
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
