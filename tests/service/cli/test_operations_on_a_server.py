"""Workflows, schedules, triggers, pools, nodes, keys and the event feed with a server."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.cli.served_commands import CommandLine
from tests.service.server.serving_node import Served, served
from tests.service.server.workflow_samples import make_report
from tidemill.cli.completions import complete_package, complete_run, complete_workflow


def make_nightly() -> list[object]:
    """Return a workflow with a schedule and a trigger."""

    @tm.trigger(every="1h")
    async def new_files() -> tm.Fire | None:
        return None

    nightly = tm.Workflow("nightly", schedule=tm.Cron("0 6 * * *", timezone="Europe/Berlin"), triggers=[new_files])

    @nightly.task
    def work() -> None:
        pass

    return [new_files, nightly]


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with workflows."""
    async with tm.Node(load=[make_report(), *make_nightly()], pools={"warehouse": 2}) as node, served(node) as one:
        yield one


@pytest.fixture
def cli(server: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line with the server."""
    return CommandLine(server, monkeypatch, capsys)


async def test_workflows_are_listed_paused_and_resumed(cli: CommandLine) -> None:
    """The same commands as on a store."""
    assert "is paused" in await cli.text("workflow", "pause", "nightly")
    listed = {one["name"]: one for one in await cli.json("workflow", "list")}
    assert (listed["nightly"]["paused"], listed["report"]["paused"]) == (True, False)
    assert "nightly" in await cli.text("workflow", "list")
    assert "is resumed" in await cli.text("workflow", "resume", "nightly")
    assert "nightl" in await cli.error("workflow", "pause", "nightl")


async def test_a_run_is_shown_explained_and_logged(server: Served, cli: CommandLine) -> None:
    """Tasks, attempts, events, the log of a task, and why it failed."""
    handle = await server.node.start("report", day="2026-01-05", rows=-2)
    await handle.wait(timeout="20s")
    shown = await cli.text("runs", "show", handle.id, "--timeline")
    assert all(word in shown for word in ("report", "failed", "negative rows", "tries", "timeline"))
    whole = await cli.json("runs", "show", handle.id)
    assert {one["task"] for one in whole["attempts"]} == {"fetch", "clean", "load"}
    assert whole["events"][-1]["after"] == "failed"
    assert whole["tasks"]["clean"]["output"] == [0, 2]
    assert "fetched  rows=2" in await cli.text("runs", "logs", handle.id, "fetch", "-f")
    assert "ValueError: negative rows" in await cli.text("runs", "logs", handle.id, "load")
    (line,) = [
        json.loads(one)
        for one in (await cli.text("runs", "logs", handle.id, "fetch", "-o", "ndjson")).split("\n")
        if one
    ]
    assert (line["message"], line["fields"], line["try"], line["index"]) == ("fetched", {"rows": 2}, 1, None)
    assert "negative rows" in await cli.text("runs", "why", handle.id, "load")
    assert "has no task 'lod'" in await cli.error("runs", "why", handle.id, "lod")


async def test_a_run_is_watched_to_its_end(server: Served, cli: CommandLine) -> None:
    """server.md: `runs watch`; in a pipe a line per event, exit code 1 if it failed."""
    handle = await server.node.start("report", day="2026-01-05")
    assert "success" in await cli.text("runs", "watch", handle.id)
    *_, last = map(json.loads, (await cli.text("runs", "watch", handle.id, "-o", "ndjson")).splitlines())
    assert last["after"] == "success"
    failed = await server.node.start("report", day="2026-01-05", rows=-2)
    assert await cli.code("runs", "watch", failed.id) == 1


async def test_a_workflow_is_run_on_the_server(cli: CommandLine) -> None:
    """Params get the types that the server names; the exit code is that of a local run."""
    result = await cli.json("run", "report", "--day", "2026-01-05", "-p", "rows=2", "-q")
    assert (result["state"], result["outputs"]["load"]) == ("success", {"sum": 2})
    assert "succeeded" in await cli.text("run", "report", "--day=2026-01-06")
    assert await cli.code("run", "report", "--day", "2026-01-05", "--rows", "-2") == 1
    assert "did you mean 'rows'" in await cli.error("run", "report", "--day", "2026-01-05", "--rws", "2")
    assert "needs a value" in await cli.error("run", "report", "--day")
    assert "workflow 'reprt'" in await cli.error("run", "reprt")
    assert "'list'; did you mean `tidemill runs list`?" in await cli.error("run", "list")


async def test_the_help_of_run_lists_the_params_of_a_workflow_of_the_server(cli: CommandLine) -> None:
    """With the types that the JSON Schema names, and the defaults."""
    params = (await cli.text("run", "report", "--help")).partition("Params of report:")[2]
    assert [line.split() for line in params.splitlines() if line] == [
        ["--day", "string", "[required]"],
        ["--rows", "integer", "[default:", "3]"],
    ]
    assert "Params of" not in await cli.text("run", "nightly", "--help")
    assert "there is no workflow 'reprt'" in await cli.error("run", "reprt", "--help")


async def test_schedules_and_triggers_are_listed(cli: CommandLine) -> None:
    """server.md: `schedule list` and `preview`, `trigger`."""
    (schedule,) = await cli.json("schedule", "list")
    assert (schedule["workflow"], schedule["timezone"]) == ("nightly", "Europe/Berlin")
    assert "nightly" in await cli.text("schedule", "list")
    slots = await cli.json("schedule", "preview", "nightly", "--count", "3")
    assert len(slots) == 3
    assert all("T06:00:00" in one["local"] for one in slots)
    assert "06:00" in await cli.text("schedule", "preview", "nightly")
    assert [one["name"] for one in await cli.json("trigger", "list")] == ["new_files"]
    assert (await cli.json("trigger", "pause", "new_files"))["paused"]
    assert "is resumed" in await cli.text("trigger", "resume", "new_files")


async def test_past_slots_are_backfilled(cli: CommandLine) -> None:
    """Days are in the time zone of the schedule, which the server names; a preview changes nothing."""
    days = ["--from", "2026-01-05", "--to", "2026-01-07"]
    preview = await cli.json("backfill", "start", "nightly", *days, "--preview")
    assert (preview["id"], preview["slots"][0]) == (None, "2026-01-05T05:00:00+00:00")
    assert "3 runs of 'nightly' would be started" in await cli.text("backfill", "start", "nightly", *days, "--preview")
    started = await cli.json("backfill", "start", "nightly", *days)
    assert len(started["runs"]) == 3
    assert (await cli.json("backfill", "cancel", started["id"]))["id"] == started["id"]
    assert "nightl" in await cli.error("backfill", "start", "nightl", *days)
    assert "no schedule" in await cli.error("backfill", "start", "report", *days)


async def test_a_shell_completes_workflows_and_runs(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """server.md: names as well as verbs."""
    monkeypatch.setenv("TIDEMILL_SERVER", server.url)
    run = await server.node.start("report", day="2026-01-05")
    assert await asyncio.to_thread(complete_workflow, "nig") == ["nightly"]
    assert await asyncio.to_thread(complete_run, run.id[:4]) == [run.id]
    assert await asyncio.to_thread(complete_package, "no") == []
    await run.wait()


async def test_pools_and_nodes_are_listed(cli: CommandLine) -> None:
    """server.md: `pool`, `node list`."""
    assert "has 3 slots" in await cli.text("pool", "set", "gpu", "3")
    assert {one["name"]: one["slots"] for one in await cli.json("pool", "list")}["gpu"] == 3
    assert "is deleted" in await cli.text("pool", "delete", "gpu")
    assert "gpu" not in await cli.text("pool", "list")
    (node,) = await cli.json("node", "list")
    assert node["leads"]
    assert node["name"] in await cli.text("node", "list")


async def test_access_is_managed_on_a_server(cli: CommandLine) -> None:
    """The same commands as on a store."""
    assert (await cli.json("tenant", "create", "acme"))["name"] == "acme"
    made = await cli.json("key", "create", "--role", "read", "--tenant", "acme", "--expires", "1d")
    assert made["key"].startswith("tm_")
    assert [one["id"] for one in await cli.json("key", "list", "--tenant", "acme")] == [made["id"]]
    assert "is revoked" in await cli.text("key", "revoke", made["id"], "--tenant", "acme")
    assert (await cli.json("variable", "set", "region", "eu"))["value"] == "eu"
    assert await cli.text("variable", "show", "region") == "eu\n"
    assert "is deleted" in await cli.text("variable", "delete", "region")
    assert any(one["action"] == "variable.set" for one in await cli.json("audit"))
    assert [one["name"] for one in await cli.json("tenant", "list")] == ["acme", "public"]


async def test_the_event_feed_is_printed_as_it_comes(server: Served) -> None:
    """server.md: `-o ndjson` for streams; the command runs until it is interrupted."""
    command = [sys.executable, "-m", "tidemill", "--server", server.url, "events", "--types", "run.*", "-o", "ndjson"]
    program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert program.stdout is not None
    try:
        async with asyncio.timeout(60):
            while True:
                await (await server.node.start("report", day="2026-01-05")).wait()
                try:
                    line = await asyncio.wait_for(program.stdout.readline(), 0.5)
                except TimeoutError:
                    continue
                break
        assert json.loads(line)["type"].startswith("run.")
    finally:
        program.terminate()
        await program.wait()
