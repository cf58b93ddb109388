"""A page that loses its server says so, and goes on when the server is back (S-9)."""

import socket
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.demo_node import demo_node
from tests.browser.views import open_page


def free_port() -> int:
    """Return a port that is free now: the server must come back on the same one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.expects_errors
def test_a_page_survives_the_loss_of_its_server(page: Page, tmp_path: Path) -> None:
    """S-9: the mark says reconnecting; what is on the page stays; afterwards the page is live again."""
    port = free_port()
    with demo_node(tmp_path, port=port) as node:
        open_page(page, f"{node.url}/workflows")
        expect(page.get_by_role("link", name="nightly_report")).to_be_visible()
        node.process.kill()
        expect(page.get_by_text("Reconnecting")).to_be_visible()
        expect(page.get_by_role("link", name="nightly_report")).to_be_visible()
    with demo_node(tmp_path, port=port) as node:
        expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=20_000)
        answer = httpx.patch(f"{node.url}/api/v1/workflows/nightly_report", json={"paused": True})
        assert answer.is_success
        expect(page.get_by_text("paused")).to_be_visible()
