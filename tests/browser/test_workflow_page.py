"""The page of a workflow: grid, start, versions (S-9)."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.pipelines import Pipelines
from tests.browser.views import open_page


@pytest.mark.expects_errors
def test_a_run_is_started_with_a_form(page: Page, pipelines: Pipelines) -> None:
    """S-9: the form comes from the params; a refusal is at its field, and a start leads to the run."""
    open_page(page, f"{pipelines.url}/workflows/load")
    page.get_by_role("button", name="Start…").click()
    dialog = page.get_by_role("dialog", name="Start load")
    expect(dialog.get_by_label("rows (optional)")).to_have_value("3")
    dialog.get_by_role("button", name="Start a run").click()
    expect(dialog.get_by_label("day", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(dialog.get_by_text("'day' (date) is missing", exact=True)).to_be_visible()
    assert violations(page) == []
    dialog.get_by_label("day", exact=True).fill("2026-01-05")
    dialog.get_by_label("Note (optional)").fill("by hand")
    dialog.get_by_role("button", name="Start a run").click()
    expect(page.get_by_role("heading", level=1, name="Run of load")).to_be_visible()
    run = pipelines.get(f"/runs/{page.url.rsplit('/', 1)[1]}")
    assert (run["params"], run["note"]) == ({"day": "2026-01-05", "rows": 3}, "by hand")


@pytest.mark.expects_errors
def test_what_is_wrong_in_a_long_form_is_in_sight(page: Page, pipelines: Pipelines) -> None:
    """UD-4: the first field at fault gets the focus, one inside an object and one inside a list too."""
    page.set_viewport_size({"width": 900, "height": 600})
    open_page(page, f"{pipelines.url}/workflows/survey")
    page.get_by_role("button", name="Start…").click()
    dialog = page.get_by_role("dialog", name="Start survey")
    day, name, areas = (dialog.get_by_label(label, exact=True) for label in ("day", "name", "areas (optional)"))
    expect(day).to_be_focused()
    dialog.get_by_label("Note (optional)").click()
    dialog.get_by_role("button", name="Start a run").click()
    expect(name).to_have_attribute("aria-invalid", "true")
    name.fill("Ada")
    dialog.get_by_role("button", name="Start a run").click()
    expect(dialog.get_by_text("'day' (date) is missing", exact=True)).to_be_in_viewport()
    expect(day).to_be_focused()
    day.fill("2026-01-05")
    name.fill("A")
    dialog.get_by_role("button", name="Start a run").click()
    expect(name).to_be_focused()
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(dialog.get_by_text("Expected `str` of length >= 2", exact=True)).to_be_in_viewport()
    assert violations(page) == []
    name.fill("Ada")
    areas.fill('[{"name": "Bea", "age": "old"}]')
    dialog.get_by_role("button", name="Start a run").click()
    expect(areas).to_be_focused()
    expect(dialog.get_by_text("[0].age: Expected `int`, got `str`", exact=True)).to_be_in_viewport()


def test_the_grid_opens_a_run_at_a_task(page: Page, pipelines: Pipelines) -> None:
    """S-9: arrows move, the line below says what the cell is, Enter opens it."""
    run = pipelines.finish("broken")
    open_page(page, f"{pipelines.url}/workflows/broken")
    grid = page.get_by_role("grid", name="Runs and tasks")
    expect(grid.get_by_role("gridcell", name="store, upstream failed").first).to_be_visible()
    assert violations(page) == []
    grid.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_text(re.compile("transform: failed"))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{pipelines.url}/runs/{run}?task=transform")


def test_the_grid_is_live(page: Page, pipelines: Pipelines) -> None:
    """S-8: a new run is a new column."""
    pipelines.finish("broken")
    open_page(page, f"{pipelines.url}/workflows/broken")
    run = pipelines.finish("broken")
    expect(page.get_by_role("gridcell", name=f"Run {run}, failed")).to_be_visible()


def test_versions_are_compared(page: Page, pipelines: Pipelines) -> None:
    """S-9: a saved file is a new version, and the page shows which lines have changed."""
    before = pipelines.get("/workflows/broken")["version"]
    source = pipelines.folder / "pipelines.py"
    source.write_text(source.read_text().replace("return extract * 2", "return extract * 3"))
    open_page(page, f"{pipelines.url}/workflows/broken?tab=code")
    expect(page.get_by_label("Compare with").get_by_role("option")).to_have_count(2)
    page.get_by_label("Compare with").select_option(before)
    changes = page.get_by_label("Changes of broken")
    expect(changes.get_by_role("deletion")).to_contain_text("return extract * 2")
    expect(changes.get_by_role("insertion")).to_contain_text("return extract * 3")
    assert violations(page) == []


def test_the_schedule_has_its_next_slots(page: Page, pipelines: Pipelines) -> None:
    """S-9: rule, catch-up and the next slots."""
    open_page(page, f"{pipelines.url}/workflows/load?tab=schedule")
    expect(page.get_by_text("missed slots get no run")).to_be_visible()
    expect(page.get_by_role("region", name="Next slots").get_by_role("row").nth(20)).to_be_visible()
    assert violations(page) == []


def test_the_grid_is_in_order_of_what_its_runs_are_about(page: Page, pipelines: Pipelines) -> None:
    """UD-15: a backfill stands at its dates, which the axis says; the newest is left, as in the list of workflows."""
    backfill = {"workflow": "load", "from": "2026-02-01T00:00:00Z", "to": "2026-02-04T23:00:00Z"}
    pipelines.post("/backfills", **backfill, limit=4)
    pipelines.finish("load", day="2026-01-05", rows=1)
    open_page(page, f"{pipelines.url}/workflows/load")
    grid = page.get_by_role("grid", name="Runs and tasks")
    expect(grid.get_by_text(re.compile(r"^Feb \d"))).not_to_have_count(0)
    heads = grid.locator("[data-row='-1']")
    runs = {one["id"]: one for one in pipelines.get("/workflows/load/grid", limit=100)["items"]}
    shown = [str(heads.nth(index).get_attribute("aria-label")).split()[1].rstrip(",") for index in range(heads.count())]
    times = [runs[one]["slot"] or runs[one]["created_at"] for one in shown if one in runs]
    assert times == sorted(times, reverse=True)
    assert len(times) >= 5


def test_owners_and_descriptions_are_shown(page: Page, pipelines: Pipelines) -> None:
    """F10: of the workflow on its page, and of a task, whose docstring describes it, in its panel."""
    open_page(page, f"{pipelines.url}/workflows/load")
    expect(page.get_by_text("Load the rows of a day, and publish their sum.")).to_be_visible()
    expect(page.get_by_text("Owner: finance team")).to_be_visible()
    run = pipelines.finish("load", day="2026-01-05", rows=1)
    open_page(page, f"{pipelines.url}/runs/{run}?task=publish")
    expect(page.get_by_role("region", name="Task publish").get_by_text("Publish the sum.")).to_be_visible()
    assert violations(page) == []
