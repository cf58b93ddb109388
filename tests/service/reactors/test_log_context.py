"""Log lines have the ids of what the code works for, also lines of author code that knows nothing of them."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import Sample, single, slow
from tidemill.engine.tasks import TaskScope
from tidemill.telemetry.log_context import REQUEST_ID, current_log_fields
from tidemill.telemetry.logs import JsonFormatter, TextFormatter

author = logging.getLogger("author")


class Lines:
    """What was logged, as lines of JSON."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def of(self, logger: str) -> list[dict[str, Any]]:
        """Return the lines of a logger."""
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if line["logger"] == logger]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Write all logs as lines of JSON."""
    lines, root = Lines(), logging.getLogger()
    handler, before = logging.StreamHandler(lines.stream), root.level
    handler.setFormatter(JsonFormatter())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(handler)
    root.setLevel(before)


def say(value: Any) -> None:
    """Log a value as author code does."""
    author.info("saw %s", value)


async def say_later(value: Any) -> None:
    """Log a value after a while."""
    await asyncio.sleep(0)
    author.info("saw %s", value)


@pytest.mark.parametrize(
    "sample",
    [single(say), single(say, strategy="sequential"), slow(say_later), slow(say_later, strategy="sequential")],
    ids=["fast path", "sequential", "async", "async sequential"],
)
async def test_a_node_of_a_graph_logs_its_firing(sample: Sample, lines: Lines) -> None:
    """Ops: the id that `firings()` shows."""
    async with tm.testing.node(load=sample.load) as node:
        for value in range(3):
            await node.push("a", value)
            await node.settle()
        ids = [firing.id for firing in reversed(node.reactor("r").firings())]
    found = [(line["event"], line["reactor"], line["tenant"], line["firing_id"]) for line in lines.of("author")]
    assert found == [(f"saw {value}", "r", "public", ids[value]) for value in range(3)]


async def test_handles_log_their_firings_without_paying_for_it(lines: Lines) -> None:
    """Q-3: the fast path sets nothing; the firing is found when something is logged."""
    async with tm.testing.node(load=single(lambda value: say(value) if value == 7 else None).load) as node:
        push = node.handle("a")
        for value in range(10):
            push(value)
        expected = list(reversed(node.reactor("r").firings()))[7].id
    assert [line["firing_id"] for line in lines.of("author")] == [expected]
    assert current_log_fields() == {}


async def test_the_innermost_firing_counts(lines: Lines) -> None:
    """A node that pushes into another reactor: lines of that one have its firing, then those of the first again."""
    handles: list[Any] = []

    @tm.passthrough
    def b(event: int) -> int:
        return event

    other = tm.Reactor("other", [b])
    graph = tm.Graph("h", reactor=other)

    @graph.node
    def inner(b: int) -> None:
        say(f"inner {b}")

    def push_on(value: int) -> None:
        handles[0](value)
        say(f"outer {value}")

    async with tm.testing.node(load=[*single(push_on).load, other, graph]) as node:
        handles.append(node.handle("b"))
        push = node.handle("a")
        for value in range(3):  # the first ones take the slow path
            push(value)
        found = {line["event"]: line["firing_id"] for line in lines.of("author")}
        for name, reactor in (("inner", "other"), ("outer", "r")):
            ids = [one.id for one in reversed(node.reactor(reactor).firings())]
            assert [found[f"saw {name} {value}"] for value in range(3)] == ids


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_task_logs_its_run(lines: Lines, *, is_async: bool) -> None:
    """Ops: run, task and attempt, on the loop and on a thread."""
    flow = tm.Workflow("report")
    if is_async:

        @flow.task(retry=tm.Retry(1, delay="1s"))
        async def fetch() -> None:
            await say_later("async")
            raise ValueError("again")
    else:

        @flow.task(retry=tm.Retry(1, delay="1s"))
        def fetch() -> None:  # type: ignore[misc]
            say("sync")
            raise ValueError("again")

    async with tm.testing.node() as node:
        await node.load(flow, tenant="acme")
        run = await node.start("report", tenant="acme")
        await node.advance("1m")
    names = ("run_id", "workflow", "task", "attempt", "tenant")
    found = [tuple(line[name] for name in names) for line in lines.of("author")]
    assert found == [(run.id, "report", "fetch", attempt, "acme") for attempt in (1, 2)]
    (ended,) = [
        line for line in lines.of("tidemill.engine.workflows.leader.coordinator") if line["event"] == "run.ended"
    ]
    assert ended["run_id"] == run.id


@contextmanager
def handling(request_id: str) -> Iterator[None]:
    """Handle a request, as the server does."""
    token = REQUEST_ID.set(request_id)
    try:
        yield
    finally:
        REQUEST_ID.reset(token)


async def test_a_firing_that_a_request_causes_has_both_ids(lines: Lines) -> None:
    """Ops: from the request to the node of the graph."""
    async with tm.testing.node(load=single(say).load) as node:
        with handling("req-1"):
            await node.push("a", 1)
        await node.push("a", 2)
    first, second = lines.of("author")
    assert first["request_id"] == "req-1"
    assert first["firing_id"] != second["firing_id"]
    assert "request_id" not in second


async def test_work_that_outlives_a_request_does_not_have_its_id() -> None:
    """A loop that a request happens to start serves others too; a call that a request waits for is its own."""
    scope, seen = TaskScope(), []
    await scope.open()

    async def look(name: str) -> None:
        seen.append((name, current_log_fields().get("request_id")))

    with handling("req-1"):
        task = scope.start("loop", look("loop"))
        await scope.run_shielded("call", look("call"))
        await task
    await scope.close()
    assert sorted(seen) == [("call", "req-1"), ("loop", None)]


HOSTILE = 'x\r\n{"level": "error", "event": "forged"}\x1b[31m\x00\u2028'


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_no_text_from_outside_forges_a_line(formatter: logging.Formatter) -> None:
    """Reliability 3g: line breaks and escape codes of terminals are written out, also in tracebacks."""
    record = logging.makeLogRecord({"msg": "%s", "args": (HOSTILE,), "name": "a", "levelname": "INFO", "who": HOSTILE})
    line = formatter.format(record)
    assert line.isprintable()
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    text = formatter.format(record)
    assert all(one.isprintable() for one in text.split("\n"))
    assert all(one.startswith("    ") for one in text.split("\n")[1:])
