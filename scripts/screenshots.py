"""Take the pictures of the web UI that README and documentation show: `python -m scripts.screenshots`."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from playwright.sync_api import Page, sync_playwright

from scripts.chromium import find_chromium
from tests.browser.demo_node import demo_node

FOLDER = Path(__file__).parent.parent / "docs/images"
SIZE = {"width": 1360, "height": 850}
WARM_UP = 150
"""Seconds until the examples have something to show: a caught-up week, a failed run, a dead letter."""
STAY = 12
"""Seconds on a page before its picture, in which rates and plots fill."""


def home(_: httpx.Client) -> str:
    """Return the path of the home page."""
    return "/"


def reactor(_: httpx.Client) -> str:
    """Return the path of the page of the market maker."""
    return "/reactors/market"


def run(client: httpx.Client) -> str:
    """Return the path of a finished report, with its times and the log of a task."""
    runs: list[dict[str, Any]] = client.get("/api/v1/runs", params={"workflow": "nightly_report"}).json()["items"]
    ended = next(one["id"] for one in runs if one["state"] == "success")
    return f"/runs/{ended}?tab=gantt&task=fetch&view=log"


PICTURES: dict[str, tuple[Callable[[httpx.Client], str], str]] = {
    "home": (home, "light"),
    "reactor": (reactor, "dark"),
    "run": (run, "light"),
}


def main() -> None:
    """Run the examples on a fresh store, and take every picture."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, demo_node(Path(folder)) as node, sync_playwright() as playwright:
        print(f"Waiting {WARM_UP} s for the examples")
        time.sleep(WARM_UP)  # noqa: TID251 # real time: the examples are live
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        with httpx.Client(base_url=node.url) as client:
            for name, (find_path, theme) in PICTURES.items():
                page = browser.new_page(viewport=SIZE, color_scheme=theme)  # type: ignore[arg-type]
                take_picture(page, node.url + find_path(client), FOLDER / f"{name}.png")
        browser.close()


def take_picture(page: Page, address: str, file: Path) -> None:
    """Take the picture of a page that has been open for a while."""
    page.goto(address)
    page.wait_for_timeout(STAY * 1000)
    page.screenshot(path=file)
    print(f"{file.name}: {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
