"""Pages with console sessions can be followed: every command runs, and prints what the page shows."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.architecture.sources import ROOT
from tests.postgres import PostgresServer
from tests.system.console_pages import run_page

DOCS = ROOT / "docs"
PAGES = [
    "how-to/back-up-and-restore.md",
    "how-to/check-a-store.md",
    "how-to/sign-a-package.md",
    "reference/cli.md",
    "reference/packages.md",
]

pytestmark = pytest.mark.timeout(300)  # dozens of commands, and each starts Python


def free_port() -> str:
    """Return a port of loopback that no process uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.parametrize("page", PAGES)
def test_the_sessions_of_a_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    """Q-3; the commands of a page follow one another in one folder, which has the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run_page(DOCS / page, tmp_path, {})


def test_the_first_package_can_be_deployed(tmp_path: Path) -> None:
    """Q-3, P-10: made, checked, signed, uploaded, replaced while it runs, unloaded."""
    run_page(DOCS / "tutorials" / "first-package.md", tmp_path, {"8080": free_port()})


async def test_a_package_gets_from_a_laptop_to_servers_and_workers(tmp_path: Path, postgres: PostgresServer) -> None:
    """Q-3, S-4: store, keys, servers, a worker, a take-over."""
    url = await postgres.fresh_database()
    address = urlsplit(url)
    replaced = {
        "postgresql://tidemill@db.example.org:5432/tidemill": url,
        "database tidemill at db.example.org:5432": f"database {address.path[1:]} at {address.hostname}:{address.port}",
        "8080": free_port(),
        "8081": free_port(),
    }
    run_page(DOCS / "tutorials" / "deploy.md", tmp_path, replaced)
