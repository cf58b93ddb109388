"""Graphs of more nodes than fit are opened at a size that can be read (UD-6)."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.demo_node import DemoNode, demo_node
from tests.browser.views import open_page

HEAD = """\
import tidemill as tm

size_{size} = tm.Workflow("size_{size}")
"""
TASK = """

@size_{size}.task
def step_{number}({parameters}) -> int:
    return {result}
"""
SMALLEST = 11.5  # pixels of a line: letters of 9
NAMES = """() => [...document.querySelectorAll(".react-flow__node div")]
  .filter((one) => one.childElementCount === 0 && one.textContent.startsWith("step_"))
  .map((name) => name.getBoundingClientRect().height)"""


def write_workflow(size: int, failing: int | None = None) -> str:
    """Return the code of a workflow whose tasks read two of those before them."""
    code = HEAD.format(size=size)
    for number in range(size):
        read = {number // 2, number - 3} if number > 3 else set()
        parameters = ", ".join(f"step_{one}: int" for one in sorted(read))
        result = "1 // 0" if number == failing else str(number)
        code += TASK.format(size=size, number=number, parameters=parameters, result=result)
    return code


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoNode]:
    """Return a node with workflows of 30 and of 150 tasks, of which one fails."""
    folder = tmp_path_factory.mktemp("sizes")
    packages = Path(folder, "packages")
    packages.mkdir()
    for size, failing in ((30, None), (150, 140)):
        (packages / f"size_{size}.py").write_text(write_workflow(size, failing), encoding="utf-8")
    with demo_node(folder, packages) as node:
        yield node


@pytest.mark.parametrize("width", [1440, 390])
def test_the_names_of_a_graph_of_30_tasks_can_be_read(page: Page, sizes: DemoNode, width: int) -> None:
    """UD-6: they had 6 to 8 pixels; an overview shows where the part is that is seen."""
    page.set_viewport_size({"width": width, "height": 900})
    open_page(page, f"{sizes.url}/workflows")
    page.get_by_role("link", name="size_30").click()
    open_page(page, f"{sizes.url}/workflows/size_30?tab=graph")
    expect(page.get_by_text("step_0", exact=True)).to_be_visible()
    page.wait_for_timeout(500)  # the view has moved to where it begins
    heights = page.evaluate(NAMES)
    assert heights
    assert min(heights) >= SMALLEST
    assert (page.get_by_label("Overview of the graph").count() == 1) is (width > 1000)
    assert violations(page) == []


def test_a_large_graph_opens_where_a_task_has_failed(page: Page, sizes: DemoNode) -> None:
    """UD-6: of 150 tasks, the one that a reader looks for is there, with its name."""
    with httpx.Client(base_url=f"{sizes.url}/api/v1", timeout=60) as api:
        open_page(page, f"{sizes.url}/workflows/size_150")
        expect(page.get_by_role("heading", name="size_150")).to_be_visible()
        run = api.post("/workflows/size_150/runs", json={}).json()["id"]
        with api.stream("GET", f"/runs/{run}/events", headers={"accept": "text/event-stream"}) as events:
            for _ in events.iter_lines():
                pass
    open_page(page, f"{sizes.url}/runs/{run}")
    expect(page.get_by_label("Tasks of this run").get_by_text("step_140", exact=True)).to_be_in_viewport()
