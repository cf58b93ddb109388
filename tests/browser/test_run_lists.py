"""Lists of runs, workflows and backfills (S-9)."""

import re

import httpx
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.pipelines import Pipelines
from tests.browser.views import open_page


def short(run: str) -> str:
    """Return the id of a run as lists show it."""
    return run[-8:]


def test_runs_are_filtered_by_the_address(page: Page, pipelines: Pipelines) -> None:
    """S-9: a link leads to a filtered list, and a filter changes the address."""
    failed, fine = pipelines.finish("broken"), pipelines.finish("load", day="2026-01-05", rows=0)
    open_page(page, f"{pipelines.url}/runs?workflow=broken")
    expect(page.get_by_role("link", name=short(failed))).to_be_visible()
    expect(page.get_by_role("link", name=short(fine))).to_have_count(0)
    page.get_by_role("button", name="Clear filters").click()
    expect(page.get_by_role("link", name=short(fine))).to_be_visible()
    page.get_by_role("group", name="States").get_by_role("button", name=re.compile("failed")).click()
    expect(page).to_have_url(f"{pipelines.url}/runs?state=failed")
    expect(page.get_by_role("link", name=short(fine))).to_have_count(0)
    page.get_by_label("Search runs").fill(fine)
    expect(page.get_by_text("No run matches these filters.")).to_be_visible()


def test_a_failed_run_says_why_in_the_list(page: Page, pipelines: Pipelines) -> None:
    """UD-7: which task failed, and its error; the age is not cut."""
    failed = pipelines.finish("broken")
    page.set_viewport_size({"width": 1280, "height": 800})
    open_page(page, f"{pipelines.url}/runs?state=failed")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=short(failed)))
    reason = pipelines.get(f"/runs/{failed}")["reason"]
    assert reason.startswith("task 'transform' failed: ")
    expect(row.get_by_text(reason)).to_be_visible()
    assert row.get_by_role("cell").nth(5).evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    assert row.get_by_role("cell").nth(7).evaluate("cell => cell.clientWidth") > 240


def test_a_new_run_appears_on_top_and_keys_open_it(page: Page, pipelines: Pipelines) -> None:
    """S-9: the list is live; `j` and Enter open a run."""
    open_page(page, f"{pipelines.url}/runs")
    run = pipelines.start("load", day="2026-02-01", rows=1)
    row = page.get_by_role("row").nth(1)
    expect(row.get_by_role("link", name=short(run))).to_be_visible()
    expect(row.get_by_text("success")).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{pipelines.url}/runs/{run}")


def test_a_workflow_is_paused_in_the_list(page: Page, pipelines: Pipelines) -> None:
    """S-9: the list shows the last runs and the next slot, and pauses."""
    pipelines.finish("load", day="2026-02-01", rows=0)
    open_page(page, f"{pipelines.url}/workflows")
    row = page.get_by_role("row", name=re.compile("^load"))
    expect(row.get_by_role("img", name=re.compile("newest runs"))).to_be_visible()
    expect(row.get_by_text(re.compile("^in "))).to_be_visible()
    page.get_by_role("button", name="Pause load").click()
    expect(page.get_by_role("button", name="Resume load")).to_be_visible()
    assert pipelines.get("/workflows/load")["paused"] is True
    page.get_by_role("button", name="Resume load").click()
    expect(page.get_by_role("button", name="Pause load")).to_be_visible()
    assert pipelines.get("/workflows/load")["paused"] is False


def test_a_backfill_is_chosen_on_the_calendar(page: Page, pipelines: Pipelines) -> None:
    """S-9: days with slots and with runs differ, the count is shown before, and the progress after."""
    backfill = {"workflow": "load", "from": "2026-03-02T00:00:00Z", "to": "2026-03-02T23:00:00Z"}
    httpx.post(f"{pipelines.url}/api/v1/backfills", json=backfill).raise_for_status()
    page.clock.set_fixed_time("2026-03-20T12:00:00Z")
    open_page(page, f"{pipelines.url}/workflows/load?dialog=backfill")
    dialog = page.get_by_role("dialog", name="Backfill load")
    expect(dialog.get_by_role("button", name="2 March 2026: 1 slot with a run", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="4 March 2026: 1 slot without a run", exact=True).click()
    dialog.get_by_role("button", name=re.compile("^2 March")).click()
    expect(dialog.get_by_text("2026-03-02 to 2026-03-04: 2 slots get a run, 1 slot has had one.")).to_be_visible()
    assert violations(page) == []
    page.reload()  # the days are in the address
    dialog.get_by_role("button", name="Start 2 runs").click()
    expect(page).to_have_url(f"{pipelines.url}/backfills")
    row = page.get_by_role("row", name=re.compile("load")).first
    expect(row.get_by_text("2/2")).to_be_visible()
    slots = [run["slot"] for run in pipelines.get("/runs", workflow="load")["items"] if run["origin"] == "backfill"]
    assert {"2026-03-03T06:00:00Z", "2026-03-04T06:00:00Z"} <= set(slots)


def test_a_backfill_is_cancelled(page: Page, pipelines: Pipelines) -> None:
    """S-9: the dialog says what happens."""
    body = {"workflow": "load", "from": "2026-04-01T00:00:00Z", "to": "2026-06-30T00:00:00Z"}
    found = httpx.post(f"{pipelines.url}/api/v1/backfills", json=body).raise_for_status().json()
    open_page(page, f"{pipelines.url}/backfills")
    page.get_by_role("button", name="Cancel the backfill of load").first.click()
    dialog = page.get_by_role("dialog", name="Cancel the backfill of load")
    dialog.get_by_role("button", name="Cancel the backfill").click()
    expect(dialog).to_be_hidden()
    assert pipelines.get(f"/backfills/{found['id']}")["state"] == "cancelled"
