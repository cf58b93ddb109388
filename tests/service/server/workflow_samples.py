"""Workflows for the tests of the API, and how tests follow their runs."""

from typing import Any

import msgspec

import tidemill as tm
from tests.service.server.serving_node import Served


class ReportParams(tm.Params):
    """The params of the report."""

    day: str
    rows: int = 3


def make_report(schedule: tm.Every | None = None) -> tm.Workflow:
    """Return a workflow whose task `load` fails while its param `rows` is negative."""
    report = tm.Workflow("report", params=ReportParams, tags=["daily", "größe"], schedule=schedule)

    @report.task
    def fetch(ctx: tm.Context, params: ReportParams) -> list[int]:
        rows = abs(params.rows)
        ctx.log.info("fetched", rows=rows)
        return list(range(rows))

    @report.task(each=fetch)
    def clean(ctx: tm.Context, fetch: int) -> int:
        ctx.log.info("cleaned", row=fetch)
        return fetch * 2

    @report.task
    def load(clean: list[int], params: ReportParams) -> dict[str, int]:
        if params.rows < 0:
            raise ValueError("negative rows")
        return {"sum": sum(clean)}

    return report


async def start(server: Served, workflow: str = "report", **params: Any) -> dict[str, Any]:
    """Start a run through the API."""
    answer = await server.http.post(f"/workflows/{workflow}/runs", json={"params": params})
    assert answer.status_code == 201, answer.text
    run: dict[str, Any] = answer.json()
    return run


async def finish(server: Served, workflow: str = "report", **params: Any) -> str:
    """Start a run through the API, and wait for its end; return its id."""
    run: str = (await start(server, workflow, **params))["id"]
    await server.node.run_handle(run).wait(timeout="10s")
    return run


async def read_stream(server: Served, path: str, **headers: str) -> list[tuple[str | None, str, Any]]:
    """Return the events of a stream that ends: id, type and data of each."""
    events: list[tuple[str | None, str, Any]] = []
    asked = {"accept": "text/event-stream"} | {name.replace("_", "-"): text for name, text in headers.items()}
    async with server.http.stream("GET", path, headers=asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream"), await answer.aread()
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            name, _, text = line.partition(": ")
            if name:
                fields[name] = text
            elif "data" in fields:
                events.append((fields.get("id"), fields["event"], msgspec.json.decode(fields["data"])))
                fields = {}
    return events
