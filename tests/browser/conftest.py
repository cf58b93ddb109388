"""A real Chromium on the pages of a real node: `make browser` runs these tests."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from scripts.chromium import find_chromium
from tests.browser.demo_node import DemoNode, demo_node
from tests.browser.pipelines import Pipelines, run_pipelines

CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Pages answer within milliseconds, but a node that a test starts needs seconds on a busy machine.
expect.set_options(timeout=15_000)
ARTIFACTS = Path(os.environ.get("TIDEMILL_TEST_SCREENSHOTS", "build/screenshots"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return a browser that all tests of a process share."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoNode]:
    """Return a node with the live examples, which tests may look at but not stop."""
    with demo_node(tmp_path_factory.mktemp("demo")) as node:
        yield node


@pytest.fixture(scope="session")
def pipelines(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipelines]:
    """Return a node whose workflows tests may start, change and cancel, once they are loaded."""
    with run_pipelines(tmp_path_factory.mktemp("pipelines")) as pipelines, browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{pipelines.url}/workflows")
        page.get_by_role("link", name="wide").wait_for()
        yield pipelines


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Return a tab that fails the test if a page logs an error, and keeps a picture of a failure."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(15_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    failures_before = request.session.testsfailed
    yield page
    if request.session.testsfailed > failures_before:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"failed-{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())}.png")
    context.close()
    expected = request.node.get_closest_marker("expects_errors")
    assert not problems or expected is not None, problems
