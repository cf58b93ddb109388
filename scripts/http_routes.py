"""Writes the tables of routes in docs/reference/http.md from the route table of the server.

`make map` runs it; `tests/service/server/test_http_reference.py` fails while the page differs from the table.
"""

import re
from pathlib import Path

from tidemill.server.route_table import ROUTES
from tidemill.server.routing import BASE_PATH, Route

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "http.md"
HEADING = "## Routes\n"

INTRODUCTION = f"""
Paths that begin with `//` count from the root, all others from `{BASE_PATH}`. The permission is what a key needs:
`none` (no key), `known` (any key), `read`, `write`, `admin` of the tenant, or `instance`: an admin of the tenant
`public`. `upload` is `instance`, or `admin` of the tenant if the server requires signatures or has the setting
`tenant_uploads`; see [what separates tenants](../how-to/secure-a-server.md#what-separates-tenants). `attempt` is the
token of a remote attempt. The OpenAPI document at `{BASE_PATH}/openapi.json` has every parameter, body and answer.
"""


def render_page(page: str) -> str:
    """Return the page with the tables for the routes as they are now."""
    written_by_hand, heading, _ = page.partition(HEADING)
    nouns: dict[str, list[str]] = {}
    for route in ROUTES:
        nouns.setdefault(route.noun, []).append(_row(route))
    return written_by_hand + heading + INTRODUCTION + "".join(_section(noun, rows) for noun, rows in nouns.items())


def _row(route: Route) -> str:
    path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
    shown = path.removeprefix(BASE_PATH) if path.startswith(BASE_PATH) else f"/{path}"
    summary = " ".join((route.handler.__doc__ or "").partition("\n\n")[0].split()).replace("|", "\\|")
    return f"| {route.method} | `{shown}` | {route.permission} | {summary} |"


def _section(noun: str, rows: list[str]) -> str:
    title = noun.capitalize()
    return (
        f"\n### {title}\n\n| method | path | permission | what it does |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
