"""Schedules as a calendar, and as a list with their next slots (S-8)."""

import re
from datetime import timedelta

import httpx
from playwright.sync_api import Page, expect

from tests.browser.demo_node import DemoNode
from tidemill.kernel.clock import SystemClock


def test_the_calendar_shows_past_and_coming_slots(page: Page, node: DemoNode) -> None:
    """S-8: coming slots lead to their workflow; a schedule of every minute is a band with its count."""
    page.goto(f"{node.url}/schedules")
    band = page.get_by_role("listitem").filter(has_text="10,080 slots this week")
    expect(band.get_by_role("link", name="exchange_rates")).to_be_visible()
    calendar = page.get_by_role("group", name="Calendar")
    page.get_by_role("button", name="Next week").click()
    expect(calendar.get_by_role("link", name="nightly_report , coming")).to_have_count(7)
    page.get_by_role("button", name="This week").click()
    expect(page).to_have_url(f"{node.url}/schedules")


def test_a_past_slot_leads_to_its_run(page: Page, node: DemoNode) -> None:
    """S-8: the nightly report has caught up with the past days; its slots are coloured by their runs."""
    yesterday = SystemClock().now().date() - timedelta(days=1)
    page.goto(f"{node.url}/schedules?week={yesterday}")
    name = re.compile("nightly_report , (success|running|queued|failed)")
    link = page.get_by_role("group", name="Calendar").get_by_role("link", name=name).first
    target = link.get_attribute("href")
    link.click()
    expect(page).to_have_url(f"{node.url}{target}")
    assert target is not None
    assert target.startswith("/runs/")


def test_the_week_is_in_the_address(page: Page, node: DemoNode) -> None:
    """S-9: a link leads to a week."""
    page.goto(f"{node.url}/schedules?week=2026-01-07")
    expect(page.get_by_role("heading", name="January 5, 2026")).to_be_visible()


def test_a_workflow_is_paused_and_resumed_by_its_schedule(page: Page, node: DemoNode) -> None:
    """S-8: pause per workflow."""
    page.goto(f"{node.url}/schedules")
    row = page.get_by_role("region", name="Schedules").get_by_role("row", name="digest")
    row.get_by_role("button", name="Pause digest").click()
    expect(row.get_by_text("paused")).to_be_visible()
    assert httpx.get(f"{node.url}/api/v1/workflows/digest").json()["paused"] is True
    row.get_by_role("button", name="Resume digest").click()
    expect(row.get_by_text("active")).to_be_visible()
    assert httpx.get(f"{node.url}/api/v1/workflows/digest").json()["paused"] is False
