"""`tidemill dead-letter`: what a store has of them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.unit.cli.test_graph import run


async def fill(store: str) -> None:
    """Leave an event, a firing and a start that failed for good."""

    @tm.passthrough
    def a(event: int) -> dict[str, Any]:
        return {"value": event}

    reactor = tm.Reactor("r", [a], strategy="sequential")
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(a: dict[str, Any]) -> int:
        return 10 // int(a["value"])

    flow = tm.Workflow("w", triggers=[tm.on_firing("r", when="payload.a.missing > 1")])

    @flow.task
    def act() -> None: ...

    async with tm.testing.node(store, load=[reactor, graph, flow]) as node:
        await node.push("a", "no number")
        await node.push("a", 0)
        await node.advance("20s")


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with three dead letters."""
    address = f"sqlite:///{tmp_path / 'store.db'}"
    asyncio.run(fill(address))
    return address


class Shell:
    """Runs commands on a store."""

    def __init__(self, store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._store = store
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run `tidemill dead-letter`, and return what it prints."""
        assert run(self._monkeypatch, "dead-letter", *arguments, "--store", self._store) == code
        printed = self._capsys.readouterr()
        return printed.out or printed.err


@pytest.fixture
def shell(store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """The command line, on that store, with wide tables."""
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(store, monkeypatch, capsys)


def test_dead_letters_are_listed_newest_first(shell: Shell) -> None:
    """G-15: listed by the CLI, with the reason."""
    found = json.loads(shell("list", "--output", "json"))
    assert [(one["kind"], one["source"]) for one in found] == [("start", "r"), ("firing", "r"), ("event", "a")]
    assert found[0]["workflow"] == "w"
    assert found[0]["firing_id"] == found[1]["firing_id"]
    assert found[0]["inputs"] == {"a": {"value": 0}}
    assert found[2]["event"] == "no number"
    table = shell("list", "--source", "r")
    assert "there is no 'missing'" in table
    assert found[0]["id"] in table
    assert found[2]["id"] not in table


def test_one_is_shown_whole(shell: Shell) -> None:
    (newest, *_) = json.loads(shell("list", "--output", "json"))
    assert json.loads(shell("show", newest["id"][-6:], "-o", "json")) == newest
    assert "there is no dead letter with an id that ends in 'nothing'" in shell("show", "nothing", code=2)
    assert "several dead letters have an id that ends in ''" in shell("show", "", code=2)


def test_a_store_replays_nothing(shell: Shell) -> None:
    """Only the node that runs the reactor can: the message names what it works with."""
    assert "this works with a running server" in shell("replay", "--all", code=2)
    assert "this works with a running server" in shell("drop", "x", code=2)
    assert "name the ID of a dead letter, or give --all" in shell("drop", code=2)


def test_another_tenant_has_none(store: str, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no tenant 'acme'" in shell("list", "--tenant", "acme", code=2)
    assert run(monkeypatch, "tenant", "create", "acme", "--store", store) == 0
    shell("list")
    assert shell("list", "--tenant", "acme") == "no dead letters\n"
