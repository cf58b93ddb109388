"""The page of a run: its tasks live, the log as it is written, and what people do with a run (S-9)."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.demo_node import DemoNode
from tests.browser.pipelines import Pipelines
from tests.browser.views import open_page


@pytest.fixture
def gated(pipelines: Pipelines) -> Iterator[str]:
    """Return a run whose first task logs until the test opens the gate; it opens in the end."""
    pipelines.gate.unlink(missing_ok=True)
    run = pipelines.start("gated")
    yield run
    pipelines.gate.touch()
    pipelines.wait(run)


def test_a_run_is_followed_to_its_end(page: Page, pipelines: Pipelines) -> None:
    """S-8: the graph follows the states without a reload, and the output of a task is shown."""
    run = pipelines.start("load", day="2026-01-05", rows=8)
    open_page(page, f"{pipelines.url}/runs/{run}")
    heading = page.get_by_role("heading", level=1, name="Run of load")
    expect(heading).to_be_visible()
    expect(page.locator("header").filter(has=heading).get_by_text("success")).to_be_visible()
    expect(page.get_by_role("img", name="Elements of clean: 8 success")).to_be_visible()
    page.get_by_role("application").get_by_text("publish").click()
    panel = page.get_by_role("region", name="Task publish")
    panel.get_by_role("link", name="Output").click()
    expect(panel.get_by_label("Output", exact=True)).to_contain_text('"sum": 56')
    assert violations(page) == []


def test_the_log_streams_and_is_searched(page: Page, pipelines: Pipelines, gated: str) -> None:
    """S-9: lines appear as they are written, a search steps through its matches, and the end is said."""
    open_page(page, f"{pipelines.url}/runs/{gated}?task=wait")
    log = page.get_by_role("log", name="Log")
    expect(log.get_by_text("still waiting 0")).to_be_visible()
    expect(log.get_by_text("still waiting 3", exact=True)).to_be_visible()
    page.get_by_label("Search the log").fill("WAITING 2")
    expect(log.locator("mark", has_text="waiting 2").first).to_be_visible()
    expect(page.get_by_text(re.compile(r"^1 of \d+$"))).to_be_visible()
    expect(page).to_have_url(re.compile("find=WAITING"))
    page.get_by_label("Search the log").fill("")
    page.get_by_label("Least level").select_option("error")
    expect(log.get_by_text("No line has this level.")).to_be_visible()
    pipelines.gate.touch()
    expect(page.get_by_text("The log is complete")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the log").click()
    assert download.value.suggested_filename == f"{gated}-wait.log"


def test_the_handlers_of_a_run_are_shown_with_their_states(page: Page, pipelines: Pipelines) -> None:
    """Each handler says how it went, and links to its run, which links back; lists of workflows leave them out."""
    run = pipelines.finish("handled")
    open_page(page, f"{pipelines.url}/runs/{run}")
    handlers = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="on_failure"))
    expect(handlers).to_contain_text(re.compile(r"on_failure\s*alert\s*success\s*page\s*failed"))
    assert violations(page) == []
    handlers.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1, name="Run of handled.on_failure")).to_be_visible()
    expect(page.get_by_role("link", name="handled", exact=True)).to_have_attribute("href", f"/runs/{run}")
    page.goto(f"{pipelines.url}/workflows?q=handled")
    expect(page.get_by_role("link", name="handled", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="handled.on_failure")).to_have_count(0)
    page.goto(f"{pipelines.url}/workflows/handled")
    expect(page.get_by_role("link", name="handled.on_failure")).to_be_visible()


def test_printed_lines_and_loggers_are_in_the_log(page: Page, pipelines: Pipelines) -> None:
    """D6: each line has its stream or level and its logger, and the filter by level knows them."""
    run = pipelines.finish("broken")
    open_page(page, f"{pipelines.url}/runs/{run}?task=extract&tab=log")
    log = page.get_by_role("log", name="Log")
    expect(log.get_by_text("connected to the source")).to_be_visible()
    expect(log.get_by_text("source: a page is missing")).to_be_visible()
    page.get_by_label("Least level").select_option("error")
    expect(log.get_by_text("connected to the source")).to_have_count(0)
    expect(log.get_by_text("source: a page is missing")).to_be_visible()


def test_a_waiting_task_says_why(page: Page, pipelines: Pipelines, gated: str) -> None:
    """S-9: `why` is a sentence on each waiting task, in its panel and in the list."""
    open_page(page, f"{pipelines.url}/runs/{gated}?tab=tasks")
    expect(page.get_by_role("row", name=re.compile("leave waiting.*waits for 'wait'"))).to_be_visible()
    page.get_by_role("link", name="leave").click()
    panel = page.get_by_role("region", name="Task leave")
    expect(panel.get_by_text("It waits for 'wait', which is running")).to_be_visible()
    assert violations(page) == []


def test_a_queued_run_says_why_in_its_header(page: Page, pipelines: Pipelines, gated: str) -> None:
    """UD-13: nothing has to be selected to learn what it waits for."""
    waiting = pipelines.start("gated")
    open_page(page, f"{pipelines.url}/runs/{waiting}")
    header = page.locator("header").filter(has=page.get_by_role("heading", level=1, name="Run of gated"))
    expect(header.get_by_text(re.compile("of 'gated' is running, at most 1 may"))).to_be_visible()
    pipelines.post(f"/runs/{waiting}/cancel")
    assert pipelines.get(f"/runs/{gated}")["state"] == "running"


def test_a_run_is_cancelled_with_a_reason(page: Page, pipelines: Pipelines, gated: str) -> None:
    """S-9: the dialog says what happens; the run keeps the reason."""
    open_page(page, f"{pipelines.url}/runs/{gated}")
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog", name="Cancel this run")
    expect(dialog.get_by_text("Running tasks are stopped now")).to_be_visible()
    dialog.get_by_label("Reason (optional)").fill("wrong day")
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("wrong day")).to_be_visible()
    found = pipelines.get(f"/runs/{gated}")
    assert (found["state"], found["reason"]) == ("cancelled", "wrong day")


def test_a_retry_shows_what_reruns_before_it_does(page: Page, pipelines: Pipelines) -> None:
    """S-9: the preview names what reruns and what is reused; the retry does just that."""
    run = pipelines.finish("broken")
    open_page(page, f"{pipelines.url}/runs/{run}?task=transform")
    expect(page.get_by_text("transform: ValueError: the schema has changed")).to_be_visible()
    page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog", name="Retry this run")
    expect(dialog.get_by_text("2 tasks rerun, 1 result is reused.")).to_be_visible()
    expect(dialog.get_by_role("application").get_by_text("reused")).to_have_count(1)
    assert violations(page) == []
    assert pipelines.get(f"/runs/{run}")["state"] == "failed", "a preview changes nothing"
    dialog.get_by_role("button", name="Rerun 2 tasks").click()
    expect(page.get_by_role("application").get_by_text("success")).to_have_count(3)
    page.get_by_role("region", name="Task transform").get_by_role("link", name="Attempts").click()
    first = page.get_by_role("article", name="attempt 1")
    expect(first.get_by_text("failed")).to_be_visible()
    first.get_by_text("Traceback", exact=True).click()
    expect(first.get_by_text("raise ValueError")).to_be_visible()
    expect(page.get_by_role("article", name="attempt 2").get_by_text("success")).to_be_visible()


def test_tasks_are_cleared_from_one_on(page: Page, pipelines: Pipelines) -> None:
    """S-9: "rerun from here" chooses the task, and all tasks after it rerun with it."""
    run = pipelines.finish("load", day="2026-01-05", rows=2)
    open_page(page, f"{pipelines.url}/runs/{run}?task=clean")
    page.get_by_role("button", name="Rerun from here").click()
    dialog = page.get_by_role("dialog", name="Clear tasks and rerun")
    expect(dialog.get_by_role("checkbox", name="clean")).to_be_checked()
    page.reload()  # the dialog is in the address
    expect(dialog.get_by_role("checkbox", name="clean")).to_be_checked()
    expect(dialog.get_by_text("2 tasks rerun, 1 result is reused.")).to_be_visible()
    dialog.get_by_role("button", name="Rerun 2 tasks").click()
    expect(dialog).to_be_hidden()
    tasks = pipelines.get(f"/runs/{run}/tasks/clean/attempts", index=0)["items"]
    assert [one["attempt"] for one in tasks] == [1, 2]


def test_a_note_is_written(page: Page, pipelines: Pipelines) -> None:
    """S-9: where it is read."""
    run = pipelines.finish("load", day="2026-01-05", rows=0)
    open_page(page, f"{pipelines.url}/runs/{run}")
    page.get_by_role("button", name="Add a note").click()
    page.get_by_label("Note", exact=True).fill("asked for by finance")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("asked for by finance")).to_be_visible()
    assert pipelines.get(f"/runs/{run}")["note"] == "asked for by finance"


def test_the_gantt_chart_opens_a_mapped_task(page: Page, pipelines: Pipelines) -> None:
    """S-9: a row per task, and one per element of the task that is open; the address says which."""
    run = pipelines.finish("load", day="2026-01-05", rows=5)
    open_page(page, f"{pipelines.url}/runs/{run}?tab=gantt")
    chart = page.get_by_label("Tasks over time")
    expect(chart.get_by_role("listitem")).to_have_count(3)
    chart.get_by_role("button", name="Elements of clean").click()
    expect(chart.get_by_role("listitem")).to_have_count(8)
    expect(page).to_have_url(re.compile("open=clean"))
    expect(chart.get_by_role("img", name=re.compile("attempt 1, success")).first).to_be_visible()
    assert violations(page) == []


def test_ten_thousand_elements_are_a_list(page: Page, pipelines: Pipelines) -> None:
    """S-9: only the rows in view exist, and a filter finds the few that failed."""
    run = pipelines.start("wide")
    open_page(page, f"{pipelines.url}/runs/{run}")
    page.get_by_role("application").get_by_text("convert").click()
    panel = page.get_by_role("region", name="Task convert")
    expect(panel.get_by_role("link", name="Elements 10,000")).to_be_visible()
    expect(panel.get_by_role("link", name="[0]", exact=True)).to_be_visible()
    assert panel.get_by_role("row").count() < 80
    panel.get_by_role("button", name=re.compile(r"\d failed")).click()
    panel.get_by_role("link", name="[7]").click()
    expect(page.get_by_text("element 7 is broken").first).to_be_visible()
    page.goto("about:blank")
    pipelines.post(f"/runs/{run}/cancel", reason="seen enough")


def test_a_run_leads_to_the_reactor_that_started_it(page: Page, node: DemoNode) -> None:
    """UD-10: a decision of a graph starts a run; the list names the reactor, and the run links back to it."""
    open_page(page, f"{node.url}/runs?workflow=callout")
    row = page.get_by_role("row").nth(1)
    expect(row.get_by_text("firing plant")).to_be_visible()
    row.get_by_role("link").first.click()
    page.get_by_role("link", name="plant", exact=True).click()
    expect(page).to_have_url(re.compile(r"/reactors/plant\?firing=plant-\w+-\d+$"))


@pytest.fixture(scope="module")
def talked(pipelines: Pipelines) -> str:
    """Return a run that logged in colours, returned a long value, and failed with a long message."""
    return pipelines.finish("talk")


def test_logs_have_the_colours_of_a_terminal(page: Page, pipelines: Pipelines, talked: str) -> None:
    """UD-12: colours instead of codes, the last state of progress, and the beginning of a log that has ended."""
    open_page(page, f"{pipelines.url}/runs/{talked}?task=say")
    log = page.get_by_role("log", name="Log")
    expect(log.get_by_text("first", exact=True)).to_be_in_viewport()
    expect(log.locator("[data-color=red][data-bold]")).to_have_text("red")
    expect(log.locator("[data-color=cyan]")).to_have_text("100 %")
    for raw in ("[31m", "[0m", "55 %"):
        expect(log.get_by_text(raw)).to_have_count(0)
    expect(page.get_by_role("button", name="Follow", exact=True)).to_have_attribute("aria-pressed", "false")
    page.get_by_label("Search the log").fill("red and green")
    expect(log.locator("mark")).to_have_text("red and green")
    assert violations(page) == []


@pytest.mark.parametrize("width", [1440, 900])
def test_a_long_error_leaves_room_for_the_log(page: Page, pipelines: Pipelines, talked: str, width: int) -> None:
    """UD-11: it is folded in the header and in the panel, and unfolded on demand."""
    page.set_viewport_size({"width": width, "height": 900})
    open_page(page, f"{pipelines.url}/runs/{talked}?task=shout&view=log")
    header = page.locator("header").filter(has=page.get_by_role("heading", level=1))
    panel = page.get_by_role("region", name="Task shout")
    expect(header.get_by_role("button", name="Show all of the reason")).to_be_visible()
    header_box, log_box = header.bounding_box(), page.get_by_role("log", name="Log").bounding_box()
    assert header_box is not None
    assert header_box["height"] < 160
    assert log_box is not None
    assert log_box["height"] > 150
    panel.get_by_role("button", name="Show all of the error").click()
    expect(panel.locator("[data-folded]").filter(has_text="reason 59 of many")).to_have_count(0)
    panel.get_by_text("Traceback", exact=True).click()
    top, tabs = panel.bounding_box(), panel.get_by_role("link", name="Attempts").bounding_box()
    assert top is not None
    assert tabs is not None
    assert tabs["y"] - top["y"] < 420
    panel.get_by_role("button", name="Fold the error").click()
    expect(panel.get_by_role("button", name="Show all of the error")).to_be_visible()


def test_params_and_outputs_are_read_and_copied_in_full(page: Page, pipelines: Pipelines, talked: str) -> None:
    """UD-24: nothing is only in a tooltip, and nothing ends at 4,000 characters."""
    open_page(page, f"{pipelines.url}/runs/{talked}?task=say&view=output")
    folded = page.locator("[data-folded]").filter(has_text="word199")
    expect(folded).to_be_visible()
    page.get_by_role("button", name="Show all of the params").click()
    expect(folded).to_have_count(0)
    expect(page.get_by_role("button", name="Copy the params")).to_be_visible()
    page.get_by_role("button", name="Fold the params").click()
    output = page.get_by_label("Output", exact=True)
    expect(output).not_to_contain_text("1999")
    page.get_by_role("button", name=re.compile("Show all [0-9,]+ characters")).click()
    expect(output).to_contain_text("1999")
    assert output.evaluate("one => one.scrollHeight - one.clientHeight") <= 1
    expect(page.get_by_role("button", name="Copy the value of Output")).to_be_visible()


def test_a_selected_task_stays_in_view(page: Page, pipelines: Pipelines, talked: str) -> None:
    """Trial D24: the panel takes half of the room, and the graph is fitted into the other half."""
    open_page(page, f"{pipelines.url}/runs/{talked}")
    box = page.locator(".react-flow__node[data-id=close]")
    box.click()
    expect(page.get_by_role("region", name="Task close")).to_be_visible()
    graph = page.get_by_role("region", name="Tasks", exact=True)
    page.wait_for_function(INSIDE, arg=[box.element_handle(), graph.element_handle()])


INSIDE = """([one, other]) => {
    const [box, room] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
    return box.width > 0 && box.left >= room.left && box.right <= room.right;
}"""
