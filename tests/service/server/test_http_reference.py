"""The reference of the HTTP API: its tables are those of the route table, and its examples work."""

import re

import msgspec

import tidemill as tm
from scripts.http_routes import PAGE, render_page
from tests.service.server.keyed_samples import keyed_market
from tests.service.server.serving_node import served
from tests.service.server.workflow_samples import make_report
from tidemill.server.openapi import openapi_document

EXAMPLE = re.compile(
    r"^```http\n(?P<method>[A-Z]+) (?P<path>\S+)\n(?P<headers>(?:\S+: .*\n)*)(?:\n(?P<body>.*)\n)?```$", re.M
)


def test_the_tables_of_routes_are_current() -> None:
    """`make map` writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == render_page(page), "run `make map`"


async def test_every_example_is_answered() -> None:
    """In the order of the page; `{run}` is the run of the first example."""
    page = PAGE.read_text(encoding="utf-8")
    examples = list(EXAMPLE.finditer(page))
    assert len(examples) == page.count("```http")
    report = make_report(schedule=tm.Every("1d", params=lambda slot: {"day": f"{slot:%Y-%m-%d}"}))
    async with tm.Node(load=[report, *keyed_market()]) as node, served(node) as server:
        run = ""
        for example in examples:
            headers = dict(line.split(": ", 1) for line in example["headers"].splitlines())
            answer = await server.http.request(
                example["method"],
                server.url + example["path"].replace("{run}", run),
                headers={"content-type": "application/json"} | headers,
                content=example["body"],
            )
            assert answer.status_code in (200, 201), f"{example['path']}: {answer.text}"
            run = run or answer.json()["id"]


def test_the_openapi_document_has_the_statuses_of_single_routes() -> None:
    """S-1: what only some routes answer with is documented too."""
    paths = msgspec.json.decode(openapi_document())["paths"]
    run, output = paths["/api/v1/runs/{run}"]["get"], paths["/api/v1/runs/{run}/tasks/{task}/output"]["get"]
    assert "304" in run["responses"]
    assert "409" not in run["responses"]
    assert "409" in output["responses"]
    assert "412" in paths["/api/v1/runs/{run}/cancel"]["post"]["responses"]
    assert {"200", "201"} <= paths["/api/v1/backfills"]["post"]["responses"].keys()
