"""axe-core on a page: rules of accessibility that a program can check."""

from typing import Any

from playwright.sync_api import Page

from tests.architecture.sources import ROOT

SCRIPT = (ROOT / "ui/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    """Return the violations on a page, one line each: the rule, and the first elements that break it."""
    page.evaluate(SCRIPT)
    found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run()).violations")
    return [f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in found]
