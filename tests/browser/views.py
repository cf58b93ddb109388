"""The pages of the UI with their addresses, and how a test waits for one."""

from playwright.sync_api import Page, expect

PAGES = {
    "home": "/",
    "reactors": "/reactors",
    "workflows": "/workflows",
    "runs": "/runs",
    "schedules": "/schedules",
    "triggers": "/triggers",
    "backfills": "/backfills",
    "packages": "/packages",
    "nodes": "/nodes",
    "pools": "/pools",
    "variables": "/variables",
    "secrets": "/secrets",
    "tenants": "/tenants",
    "keys": "/keys",
    "accounts": "/accounts",
    "audit": "/audit",
    "system": "/system",
}


def open_page(page: Page, address: str) -> None:
    """Open a page, and wait until it is live and shows its answers."""
    page.goto(address)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="Loading")).to_have_count(0)
