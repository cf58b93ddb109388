"""`tidemill runs` and `tidemill dead-letter` with a server: the same commands as on a store."""

from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.cli.served_commands import CommandLine
from tests.service.server.graph_samples import market
from tests.service.server.serving_node import Served, served
from tests.service.server.workflow_samples import make_report


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a workflow and a reactor."""
    async with tm.Node(load=[make_report(), *market()]) as node, served(node) as one:
        yield one


@pytest.fixture
def cli(server: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line with the server."""
    return CommandLine(server, monkeypatch, capsys)


async def finished(server: Served, **params: object) -> str:
    """Return the id of a run that has ended."""
    handle = await server.node.start("report", params)
    await handle.wait(timeout="20s")
    return handle.id


async def test_runs_are_listed_and_changed(server: Served, cli: CommandLine) -> None:
    """Runs are listed newest first, retried, cleared, noted, by a part of their id."""
    good, bad = await finished(server, day="2026-01-05"), await finished(server, day="2026-01-06", rows=-1)
    listed = await cli.json("runs", "list")
    assert [(one["id"], one["state"]) for one in listed] == [(bad, "failed"), (good, "success")]
    assert listed[1]["params"] == {"day": "2026-01-05", "rows": 3}
    assert good[-8:] in await cli.text("runs", "list", "--state", "success")
    plan = await cli.json("runs", "retry", bad[-8:], "--preview")
    assert (plan["run"], plan["reruns"]) == (bad, ["load"])
    assert (await cli.json("runs", "clear", good, "clean", "--preview"))["reruns"] == ["clean", "load"]
    assert await cli.text("runs", "note", bad, "known") == f"run {bad} has a note\n"
    assert "has ended" in await cli.error("runs", "cancel", good)
    assert "run_not_found" not in await cli.error("runs", "retry", "zzz")
    assert await cli.text("runs", "note", bad, "odd", "--task", "load") == f"task 'load' of run {bad} has a note\n"
    shown = await cli.json("runs", "show", bad)
    assert (shown["note"], shown["notes"]) == ("known", {"load": "odd"})
    assert [one["id"] for one in await cli.json("runs", "list", "--text", "01-06")] == [bad]
    assert await cli.text("runs", "list", "--until", "2026-01-01") == "no runs\n"
    assert len(await cli.json("runs", "list", "--since", "2h")) == 2
    assert await cli.json("runs", "list", "--since", "2999-01-01 06:00") == []
    assert await cli.text("runs", "list", "--until", "1h30m") == "no runs\n"
    assert "'yesterday' is not a moment: write" in await cli.error("runs", "list", "--since", "yesterday")


async def test_many_runs_are_selected_at_once(server: Served, cli: CommandLine) -> None:
    """`--state` selects runs on the server."""
    runs = [await finished(server, day=f"2026-01-0{day}", rows=-1) for day in (1, 2)]
    answer = await cli.json("runs", "retry", "--state", "failed", "--preview")
    assert sorted(one["id"] for one in answer["runs"]) == sorted(runs)


async def test_dead_letters_are_those_of_all_reactors(server: Served, cli: CommandLine) -> None:
    """Of events that did not fit, and of firings that failed."""
    assert await cli.text("dead-letter", "list") == "no dead letters\n"
    await server.node.push("orderbook", {"bid": "much"})
    await server.node.push("orderbook", {"bid": 13.0})
    await server.node.settle()
    listed = await cli.json("dead-letter", "list")
    assert [one["kind"] for one in listed] == ["firing", "event"]
    assert (await cli.json("dead-letter", "list", "--source", "orderbook"))[0]["event"] == {"bid": "much"}


async def test_a_server_and_a_profile_are_too_much(cli: CommandLine) -> None:
    """The command says so, and does nothing."""
    assert "--server or --profile, not both" in await cli.error("--profile", "prod", "runs", "list")
