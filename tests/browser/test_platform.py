"""The pages of packages, triggers, nodes and the system (S-8)."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.demo_node import DemoNode, demo_node
from tests.browser.releases import upload

IMPORT_ERROR = '''"""A file whose fifth line cannot be imported."""

import tidemill as tm

nonsense = undefined
'''

POLLED = '''"""A workflow that a polled trigger starts."""

import tidemill as tm


@tm.trigger(every="30s")
async def arrived() -> tm.Fire | None:
    return None


arrivals = tm.Workflow("arrivals", triggers=[arrived])


@arrivals.task
def unpack() -> None: ...
'''


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive of a new package `crates`."""
    folder = tmp_path_factory.mktemp("crates")
    for arguments in (["new", "crates"], ["build", "crates"]):
        command = [sys.executable, "-m", "tidemill", "package", *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    [built] = folder.rglob("*.tidemill")
    return built


def test_a_package_is_uploaded_and_unloaded(page: Page, node: DemoNode, archive: Path) -> None:
    """S-8: the name comes from the archive; the page of the package shows the digest, and unloads it."""
    page.goto(f"{node.url}/packages")
    page.get_by_role("button", name="Upload a package").click()
    page.get_by_label("Archive").set_input_files(archive)
    expect(page.get_by_label("Name", exact=True)).to_have_value("crates")
    page.get_by_role("button", name="Upload", exact=True).click()
    page.get_by_role("link", name="crates").click()
    digest = httpx.get(f"{node.url}/api/v1/packages/crates").json()["digest"]
    expect(page.get_by_text(digest)).to_be_visible()
    page.get_by_role("button", name="Unload").click()
    page.get_by_role("dialog").get_by_role("button", name="Unload package").click()
    expect(page).to_have_url(f"{node.url}/packages")
    expect(page.get_by_role("link", name="crates")).to_have_count(0)
    assert httpx.get(f"{node.url}/api/v1/packages/crates").status_code == 404


def test_a_package_is_rolled_back(page: Page, node: DemoNode, tmp_path: Path) -> None:
    """S-8: the kept versions, each to go back to; a rollback by another person shows without a reload."""
    with httpx.Client(base_url=f"{node.url}/api/v1", timeout=20) as api:
        upload(api, tmp_path, "barrels", "0.1.0", "0.2.0")
        page.goto(f"{node.url}/packages/barrels")
        versions = page.get_by_role("region", name="Versions")
        first, second = (versions.get_by_role("row").filter(has_text=one) for one in ("0.1.0", "0.2.0"))
        expect(second.get_by_text("published")).to_be_visible()
        expect(second.get_by_role("button")).to_have_count(0)
        first.get_by_role("button", name="Roll back to 0.1.0").click()
        dialog = page.get_by_role("dialog", name="Roll barrels back to 0.1.0?")
        assert violations(page) == []
        expect(dialog).to_contain_text("loads version 0.1.0 in place of 0.2.0")
        dialog.get_by_role("button", name="Roll back").click()
        expect(page.get_by_text("Package barrels is rolled back to 0.1.0.")).to_be_visible()
        expect(dialog).to_have_count(0)
        expect(first.get_by_text("published")).to_be_visible()
        api.post("/packages/barrels/rollback", json={"version": "0.2.0"}).raise_for_status()
        expect(second.get_by_text("published")).to_be_visible()
        expect(first.get_by_role("button", name="Roll back to 0.1.0")).to_be_visible()
        [newest, _] = api.get("/audit", params={"action": "package.rollback"}).json()["items"]
        assert newest["target"] == "barrels"
        api.delete("/packages/barrels").raise_for_status()


@pytest.mark.expects_errors
def test_an_archive_that_is_none_is_refused_in_the_dialog(page: Page, node: DemoNode, tmp_path: Path) -> None:
    """S-8: the answer of the server stays beside what was chosen."""
    bad = tmp_path / "bad-1.0.0.tidemill"
    bad.write_bytes(b"not an archive")
    page.goto(f"{node.url}/packages?dialog=upload")
    page.get_by_label("Archive").set_input_files(bad)
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()


def test_the_six_steps_of_a_load_have_times(page: Page, node: DemoNode) -> None:
    """S-8, S-9: the page of a package, which the keyboard opens, shows what loading it did."""
    page.goto(f"{node.url}/packages?q=market_maker")
    expect(page.get_by_role("link", name="market_maker")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{node.url}/packages/market_maker")
    steps = page.get_by_role("region", name="Steps of the last load").get_by_role("listitem")
    expect(steps).to_have_count(6)
    expect(steps.filter(has_text="reactors").first).to_contain_text("s")


def test_an_import_error_is_shown_by_file_and_line(page: Page, tmp_path: Path) -> None:
    """S-8: import errors have the place, ready to paste into an editor."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "broken.py").write_text(IMPORT_ERROR)
    with demo_node(tmp_path, packages) as node:
        page.goto(f"{node.url}/packages")
        errors = page.get_by_role("region", name="Import errors")
        expect(errors.get_by_text("broken.py:5")).to_be_visible()
        expect(errors.get_by_text("name 'undefined' is not defined")).to_be_visible()
        expect(errors.get_by_text("nonsense = undefined", exact=True)).to_be_visible()
        errors.get_by_role("link", name="broken").click()
        expect(page.get_by_role("region", name="Why it is not loaded").get_by_text("broken.py:5")).to_be_visible()
        page.goto("about:blank")


def test_a_trigger_is_paused_and_resumed(page: Page, tmp_path: Path) -> None:
    """S-8: the page says what a trigger watches and starts, and pauses it."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "arrivals.py").write_text(POLLED)
    with demo_node(tmp_path, packages) as node:
        page.goto(f"{node.url}/triggers")
        row = page.get_by_role("row", name="arrived")
        expect(row.get_by_text("polled every 30 s")).to_be_visible()
        row.get_by_role("button", name="Pause").click()
        expect(row.get_by_text("paused")).to_be_visible()
        assert _trigger(node)["paused"] is True
        row.get_by_role("button", name="Resume").click()
        expect(row.get_by_text("active")).to_be_visible()
        assert _trigger(node)["paused"] is False
        row.get_by_role("link", name="arrivals").click()
        expect(page).to_have_url(f"{node.url}/workflows/arrivals")
        page.goto("about:blank")


def _trigger(node: DemoNode) -> dict[str, object]:
    [trigger] = httpx.get(f"{node.url}/api/v1/triggers").json()["items"]
    return dict(trigger)


def test_a_trigger_leads_to_the_reactor_of_its_graph(page: Page, node: DemoNode) -> None:
    """S-8: what a trigger watches is a link."""
    page.goto(f"{node.url}/triggers")
    page.get_by_role("link", name="node alert of graph monitor").click()
    expect(page).to_have_url(f"{node.url}/reactors/plant")


def test_nodes_show_the_leader_and_its_load(page: Page, node: DemoNode) -> None:
    """S-8: workers and leader."""
    page.goto(f"{node.url}/nodes")
    row = page.get_by_role("row").filter(has_text="leader")
    expect(row.get_by_text("alive")).to_be_visible()
    expect(row.get_by_role("img", name="Running tasks of")).to_be_visible()


def test_the_system_page_shows_the_store_and_plots_metrics(page: Page, node: DemoNode) -> None:
    """S-8: storage, retention, metrics."""
    page.goto(f"{node.url}/system")
    expect(page.get_by_role("region", name="Store").get_by_text("SQLite database")).to_be_visible()
    expect(page.get_by_text("Keeps ended runs for")).to_be_visible()
    expect(page.get_by_role("cell", name="heartbeat_timeout")).to_be_visible()
    expect(page.get_by_role("img", name="Events and firings").locator("canvas")).to_be_visible()
