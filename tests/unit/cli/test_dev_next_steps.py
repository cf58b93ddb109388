"""The next steps on the first screen of `tidemill dev`: commands that fit what is loaded."""

import io
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

import tidemill as tm
from tidemill.cli.dev_next_steps import FIRST_FILE, first_steps, next_steps
from tidemill.cli.dev_view import DevView
from tidemill.kernel.clock import SystemClock
from tidemill.packages.loading.reader import read_module

STORE = "sqlite:///.tidemill/dev.db"
URL = "http://127.0.0.1:8080"
WATCH = f"watch it live:  tidemill --server {URL} reactor watch market"


class Book(tm.Boundary):
    """An event with fields."""

    bid: float
    venue: str
    depth: tuple[int, ...] = ()


class Day(tm.Params):
    """Params of which one is required."""

    first_day: str
    limit: int = 10


def workflow(name: str, **options: object) -> tm.Workflow:
    """Return a workflow with one task."""
    made = tm.Workflow(name, **options)

    @made.task
    def one() -> None: ...

    return made


def reactor(source: tm.Accumulator) -> tm.Reactor:
    """Return a reactor on a source."""
    return tm.Reactor("market", [source])


async def steps(*things: object) -> list[str]:
    """Return the steps that are suggested on a node that has loaded something."""
    async with tm.Node(load=list(things)) as node:
        return list(next_steps(node.registry, node.tenant, STORE, URL))


async def test_a_run_is_started_with_the_params_that_it_needs() -> None:
    """The workflow that nothing else starts is the example."""
    found = await steps(workflow("alone", schedule=tm.Every("1h")), workflow("daily", params=Day))
    target = f"{Path(__file__).relative_to(Path.cwd())}:daily"
    assert found[0] == f"start a run:    tidemill run {target} --first-day FIRST_DAY --store {STORE}"
    assert found[1] == f"look at runs:   tidemill runs list --store {STORE}"


async def test_an_event_is_pushed_with_its_fields() -> None:
    @tm.passthrough
    def orderbook(event: Book) -> Book:
        return event

    [watch, push, change] = await steps(reactor(orderbook))
    assert watch == WATCH
    event = '{"bid": 1.0, "venue": "text", "depth": "..."}'
    assert push == f"push an event:  echo '{event}' | tidemill accumulator push orderbook --server {URL}"
    assert change == "change a file:  a save takes effect at once"


async def test_an_event_without_fields_is_pushed_as_its_type() -> None:
    @tm.passthrough
    def ticks(event: int) -> int:
        return event

    @tm.batch(every="1s")
    def fills(events: list[Book | int]) -> int:
        return len(events)

    assert "echo 1 | tidemill accumulator push ticks " in (await steps(reactor(ticks)))[1]
    assert "echo '\"...\"' | tidemill accumulator push fills " in (await steps(reactor(fills)))[1]


async def test_nothing_is_pushed_where_events_come_by_themselves() -> None:
    @tm.polling(every="1h")
    async def quotes() -> int:
        return 1

    assert await steps(reactor(quotes)) == [WATCH, "change a file:  a save takes effect at once"]


async def test_nothing_is_pushed_where_a_graph_feeds() -> None:
    @tm.polling(every="1h")
    async def quotes() -> int:
        return 1

    @tm.batch(every="1s")
    def fills(events: list[int]) -> int:
        return len(events)

    market, desk = reactor(quotes), tm.Reactor("desk", [fills])
    graph = tm.Graph("graph", reactor=market)

    @graph.node(feeds=fills)
    def fill(quotes: int) -> int:
        return quotes

    assert not [line for line in await steps(desk, market, graph) if line.startswith("push an event")]


@pytest.mark.parametrize(
    ("folder", "package", "file"),
    [
        (".", "tidemill package new hello", "hello.py"),
        ("my desk", "tidemill package new hello --folder 'my desk/hello'", "my desk/hello.py"),
    ],
)
def test_an_empty_folder_begins_with_commands_to_copy(folder: str, package: str, file: str) -> None:
    """They write to the folder that is watched, wherever the other terminal is."""
    first, demo, save, *rest = first_steps(folder)
    assert first == f"write a package:    {package}"
    assert demo == "see live examples:  tidemill demo"
    assert save == f"or save a file:     {file}"
    assert "\n".join(rest).strip() == FIRST_FILE.strip()


def test_the_first_file_is_a_package() -> None:
    module = ModuleType("hello")
    exec(FIRST_FILE, vars(module))
    [hello] = read_module(module).workflows
    hello.check()


async def test_the_steps_are_shown_once_and_not_before_something_is_loaded() -> None:
    """An empty folder has the first file instead."""
    with redirect_stdout(io.StringIO()) as output:
        async with tm.Node() as node:
            view = DevView(node, Path.cwd(), SystemClock(), lambda: None, STORE)
            view.show_packages([])
            assert "hello = tm.Workflow(" in output.getvalue()
            assert "start a run" not in output.getvalue()
            await node.load(workflow("daily"))
            view.show_packages(node.packages())
            view.show_packages(node.packages())
    assert output.getvalue().count("start a run") == 1
