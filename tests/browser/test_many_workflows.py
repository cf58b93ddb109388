"""The list of workflows with more of them than one answer holds, and with a name as long as names may be (S-9)."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.demo_node import DemoNode, demo_node
from tests.browser.views import open_page

WORKFLOWS = 260
LONG = "a_" + "long_" * 25 + "name"
PACKAGE = f"""\
import tidemill as tm

long = tm.Workflow("{LONG}", tags=["nightly"])


@long.task
def step() -> int:
    return 1


def workflow(number):
    made = tm.Workflow(f"import_{{number:03}}")
    made.task(step)
    return made


MANY = [workflow(number) for number in range({WORKFLOWS})]
for one in MANY:
    globals()[one.name] = one
"""


@pytest.fixture(scope="module")
def crowded_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoNode]:
    """Return a node with the package."""
    folder = tmp_path_factory.mktemp("crowded")
    packages = folder / "packages"
    packages.mkdir()
    (packages / "crowded.py").write_text(PACKAGE)
    with demo_node(folder, packages) as node:
        yield node


def test_the_last_workflow_is_reached_by_scrolling(page: Page, crowded_node: DemoNode) -> None:
    """UD-3: the list reads on as far as it is looked at, by wheel and by key."""
    open_page(page, f"{crowded_node.url}/workflows")
    expect(page.get_by_text(f"{WORKFLOWS + 1} workflows")).to_be_visible()
    page.get_by_role("link", name="import_000").hover()
    last = page.get_by_role("link", name=f"import_{WORKFLOWS - 1:03}", exact=True)
    for _ in range(40):
        if last.is_visible():
            break
        page.mouse.wheel(0, 2000)
        page.wait_for_timeout(100)
    expect(last).to_be_visible()
    last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"import_{WORKFLOWS - 1:03}")


@pytest.mark.parametrize("width", [400, 1180])
def test_a_long_name_leaves_room_for_the_rest(page: Page, crowded_node: DemoNode, width: int) -> None:
    """UD-2: the table fits the page, what is said after the name is in sight, the title takes two lines."""
    page.set_viewport_size({"width": width, "height": 800})
    open_page(page, f"{crowded_node.url}/workflows")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=LONG))
    expect(row.get_by_text("nightly")).to_be_in_viewport(ratio=1)
    expect(row.get_by_text("never")).to_be_in_viewport(ratio=1)
    table = page.get_by_role("region", name="Workflows")
    assert table.evaluate("element => element.scrollWidth <= element.clientWidth")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    row.get_by_role("link", name=LONG).click()
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_attribute("title", LONG)
    box = title.bounding_box()
    assert box is not None
    assert box["height"] <= 61
