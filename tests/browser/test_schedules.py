"""Schedules as a calendar, and as a list with their next slots (S-8)."""

import re
from datetime import timedelta
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.demo_node import DemoNode, demo_node
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


MANY = '''"""Many workflows with schedules: some of every minute, most at the same hour."""

import tidemill as tm


def make(name: str, rule: str) -> tm.Workflow:
    """Return a workflow that does nothing."""
    workflow = tm.Workflow(name, schedule=tm.Cron(rule, catchup="none"))

    @workflow.task
    def work() -> None:
        """Do nothing."""

    return workflow


all_of_them = [make(f"nightly_{number:03}", "0 6 * * *") for number in range(200)]
dense = [make(f"minutely_{number:03}", "* * * * *") for number in range(30)]
globals().update({one.name: one for one in [*all_of_them, *dense]})
'''


def test_many_schedules_fit_on_a_page(page: Page, tmp_path: Path) -> None:
    """UD-17: cells, bands and rows are folded, the height and the elements have a bound, and a search finds one."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "many.py").write_text(MANY)
    with demo_node(tmp_path, packages) as node:
        page.goto(f"{node.url}/schedules")
        calendar = page.get_by_role("group", name="Calendar")
        expect(calendar.get_by_role("button", name="197 more").first).to_be_visible()
        expect(page.get_by_role("button", name="25 more schedules with many slots")).to_be_visible()
        expect(page.get_by_role("button", name="Show 180 more schedules")).to_be_visible()
        height, elements = page.evaluate("[document.querySelector('#content').scrollHeight, document.all.length]")
        assert height < 4000
        assert elements < 3000
        assert violations(page) == []
        calendar.get_by_role("button", name="197 more").first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("link")).to_have_count(200)
        dialog.get_by_role("button", name="Close").click()
        page.get_by_label("Search workflows").fill("nightly_042")
        expect(calendar.get_by_role("link", name=re.compile("nightly_042"))).not_to_have_count(0)
        expect(calendar.get_by_role("link", name=re.compile("nightly_041"))).to_have_count(0)
        expect(page.get_by_role("table").get_by_role("row")).to_have_count(2)
        expect(page).to_have_url(re.compile("q=nightly_042"))
