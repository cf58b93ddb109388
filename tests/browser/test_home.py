"""The home page: what runs, is late, fails, is degraded, and what comes next (S-8)."""

from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.browser.demo_node import DemoNode, demo_node

BROKEN = '''"""A file that cannot be imported."""

import tidemill as tm

broken = tm.Workflow("broken")


@broken.task
def first(ctx: tm.Context) -> None:
    return unknown_name


nonsense = undefined
'''

FAILING = '''"""A workflow that always fails."""

import tidemill as tm

doomed = tm.Workflow("doomed")


@doomed.task
def sink(ctx: tm.Context) -> None:
    raise tm.Fail("the ship is gone")
'''


def test_the_home_page_moves(page: Page, node: DemoNode) -> None:
    """S-8, S-9: rates of reactors move without a request, and coming slots are drawn."""
    page.goto(node.url)
    market = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="market", exact=True))
    course = market.get_by_role("img", name="Firings of market in the last minute")
    expect(course).not_to_have_accessible_name("Firings of market in the last minute: now 0/s")
    before = course.locator("polyline").get_attribute("points")
    expect(course.locator("polyline")).not_to_have_attribute("points", before or "")
    panel = page.get_by_role("region", name="The next hour")
    expect(panel.get_by_role("link", name="digest")).to_be_visible()


def test_tiles_lead_to_what_they_count(page: Page, node: DemoNode) -> None:
    """S-8: each figure is a link."""
    page.goto(node.url)
    page.get_by_role("link", name="Running").click()
    expect(page).to_have_url(f"{node.url}/runs?state=running")
    page.goto(node.url)
    page.get_by_role("link", name="Late slots").click()
    expect(page).to_have_url(f"{node.url}/schedules?late=true")
    expect(page.get_by_role("region", name="Late slots")).to_be_visible()
    page.get_by_role("button", name="late slots").click()
    expect(page.get_by_role("region", name="All schedules").get_by_role("link", name="digest")).to_be_visible()


def test_what_needs_attention_is_listed_with_its_reason(page: Page, tmp_path: Path) -> None:
    """S-8: a package that cannot be loaded and a workflow that fails, each with a reason and a link."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "broken.py").write_text(BROKEN)
    (packages / "failing.py").write_text(FAILING)
    with demo_node(tmp_path, packages) as node:
        # The node answers while it still loads its packages.
        page.goto(f"{node.url}/workflows")
        expect(page.get_by_role("link", name="doomed")).to_be_visible()
        page.goto(node.url)
        attention = page.get_by_role("region", name="Needs attention")
        expect(attention.get_by_role("link", name="broken")).to_be_visible()
        httpx.post(f"{node.url}/api/v1/workflows/doomed/runs", json={}).raise_for_status()
        expect(attention.get_by_text("the ship is gone")).to_be_visible()
        expect(page.get_by_role("link", name="1 Packages not loaded")).to_be_visible()
        events = page.get_by_role("region", name="Recent events")
        expect(events.get_by_text("has failed")).to_be_visible()
        attention.get_by_role("link", name="doomed · sink").click()
        expect(page).to_have_url(f"{node.url}/runs/{_only_run(node)}")
        page.goto(node.url)
        page.get_by_role("link", name="1 Failed runs").click()
        expect(page).to_have_url(f"{node.url}/runs?unresolved=true")
        expect(page.get_by_text("1 run", exact=True)).to_be_visible()
        page.get_by_role("button", name="Dismiss all 1…").click()
        page.get_by_role("button", name="Dismiss", exact=True).click()
        expect(page.get_by_text("No run matches these filters.")).to_be_visible()
        page.goto(node.url)
        expect(page.get_by_role("link", name="0 Failed runs")).to_be_visible()
        page.goto("about:blank")


def _only_run(node: DemoNode) -> str:
    [run] = httpx.get(f"{node.url}/api/v1/runs").json()["items"]
    return str(run["id"])


def test_an_empty_node_says_what_to_do_next(page: Page, tmp_path: Path) -> None:
    """S-8: three steps with commands to copy; the page fills by itself once a package is there."""
    packages = tmp_path / "packages"
    packages.mkdir()
    with demo_node(tmp_path, packages) as node:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto(node.url)
        expect(page.get_by_text("no package is loaded yet")).to_be_visible()
        page.get_by_role("button", name="Copy tidemill package new hello").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == "tidemill package new hello"
        (packages / "failing.py").write_text(FAILING)
        expect(page.get_by_role("region", name="Needs attention")).to_be_visible()
        page.goto("about:blank")
