"""Traces: one from a request through run, tasks and firings; nothing without a collector."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tidemill.kernel.errors import OperationError
from tidemill.node_arguments import NodeProfile
from tidemill.telemetry import otlp_spans
from tidemill.telemetry.otlp_spans import OtlpSpans, make_span_recorder
from tidemill.telemetry.tracing import NoSpans, StoredTrace, TraceContext

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


class Traced:
    """A served node, and the spans that it has recorded."""

    def __init__(self, server: Served, exporter: InMemorySpanExporter) -> None:
        self.server = server
        self._exporter = exporter

    def spans(self) -> dict[str, ReadableSpan]:
        """Return the spans by name."""
        return {one.name: one for one in self._exporter.get_finished_spans()}

    async def until(self, *names: str) -> dict[str, ReadableSpan]:
        """Wait for spans, and return all."""
        async with asyncio.timeout(10):
            while not set(names) <= self.spans().keys():  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.001)
        return self.spans()


@asynccontextmanager
async def traced(*load: Any, **options: Any) -> AsyncIterator[Traced]:
    """Serve a node that is traced."""
    exporter = InMemorySpanExporter()

    profile = NodeProfile(spans=OtlpSpans(exporter, SimpleSpanProcessor(exporter)))
    async with tm.Node(load=load, _profile=profile, **options) as node, served(node) as server:
        yield Traced(server, exporter)


def parent_of(span: ReadableSpan) -> int | None:
    """Return the id of a span's parent."""
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    return span.context.span_id


def assert_chain(spans: dict[str, ReadableSpan], *names: str) -> None:
    """Assert that each span is the child of the one before it, all in the trace of the caller."""
    for name in names:
        context = spans[name].context
        assert context is not None
        assert f"{context.trace_id:032x}" == TRACE
    for parent, child in pairwise(names):
        assert parent_of(spans[child]) == id_of(spans[parent]), f"{child} is not a child of {parent}"


def report(executor: str | None = None) -> tm.Workflow:
    """Return a workflow whose second task fails."""
    workflow = tm.Workflow("report")

    @workflow.task(executor=executor)
    def fetch() -> int:
        return 1

    @workflow.task(executor=executor)
    def load(fetch: int) -> None:
        raise tm.Fail("no space")

    return workflow


async def test_a_trace_goes_from_the_request_through_the_run_to_its_tasks() -> None:
    """Ops: the header's trace; each span with its parent, its times, and the error of what failed."""
    async with traced(report()) as node:
        answer = await node.server.http.post("/workflows/report/runs", json={"params": {}}, headers=HEADERS)
        assert answer.status_code == 201
        spans = await node.until("run report")
    request = "POST /api/v1/workflows/{name}/runs"
    assert_chain(spans, request, "run report", "task fetch")
    assert_chain(spans, "run report", "task load")
    assert parent_of(spans[request]) == int(PARENT, 16)
    assert spans[request].kind is otel.SpanKind.SERVER
    assert spans["task load"].status.description == "Fail: no space"
    assert not spans["run report"].status.is_ok
    assert spans["task fetch"].status.is_ok or spans["task fetch"].status.status_code is otel.StatusCode.UNSET
    facts = spans["task fetch"].attributes or {}
    assert (facts["tidemill.run_id"], facts["tidemill.task"]) == (answer.json()["id"], "fetch")
    run, task = spans["run report"], spans["task fetch"]
    assert run.start_time is not None
    assert task.start_time is not None
    assert task.end_time is not None
    assert run.end_time is not None
    assert run.start_time <= task.start_time <= task.end_time <= run.end_time
    assert run.resource.attributes["service.name"] == "tidemill"


@pytest.mark.parametrize("is_async", [False, True], ids=["in the push", "in a task of its own"])
async def test_a_trace_goes_from_a_push_through_the_firing_to_its_run(*, is_async: bool) -> None:
    """Ops: push, firing, run and task are one trace, wherever the graph runs."""

    @tm.passthrough
    def prices(event: int) -> int:
        return event

    reactor = tm.Reactor("market", [prices])
    graph = tm.Graph("maker", reactor=reactor)
    if is_async:

        @graph.node
        async def place(prices: int) -> dict[str, int]:
            await asyncio.sleep(0)
            return {"price": prices}
    else:

        @graph.node
        def place(prices: int) -> dict[str, int]:  # type: ignore[misc]
            return {"price": prices}

    workflow = tm.Workflow("order", triggers=[tm.on_output("maker", "place")])

    @workflow.task
    async def send() -> None:
        return None

    async with traced(reactor, graph, workflow) as node:
        answer = await node.server.http.post("/accumulators/prices/events", json=7, headers=HEADERS)
        assert answer.status_code == 200
        spans = await node.until("run order")
    request = "POST /api/v1/accumulators/{name}/events"
    assert_chain(spans, request, "firing market", "run order", "task send")
    assert (spans["firing market"].attributes or {})["tidemill.reactor"] == "market"


async def test_a_run_that_a_task_starts_is_in_the_same_trace() -> None:
    """Ops: `ctx.start`."""
    parent, child = tm.Workflow("parent"), tm.Workflow("child")

    @parent.task
    async def begin(ctx: tm.AsyncContext) -> None:
        await ctx.start("child")

    @child.task
    async def work() -> None:
        return None

    async with traced(parent, child) as node:
        await node.server.http.post("/workflows/parent/runs", json={"params": {}}, headers=HEADERS)
        spans = await node.until("run child", "run parent")
    assert_chain(spans, "run parent", "task begin", "run child", "task work")


async def test_spans_of_author_code_are_children_of_its_task() -> None:
    """Ops: code that uses OpenTelemetry itself continues the trace."""
    own = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(own))
    tracer, workflow = provider.get_tracer("author"), tm.Workflow("report")

    @workflow.task
    def fetch() -> None:
        with tracer.start_as_current_span("query"):
            pass

    async with traced(workflow) as node:
        await node.server.http.post("/workflows/report/runs", json={"params": {}}, headers=HEADERS)
        spans = await node.until("run report")
    (query,) = own.get_finished_spans()
    assert parent_of(query) == id_of(spans["task fetch"])


async def test_a_run_without_a_request_begins_a_trace() -> None:
    """Ops: a schedule, a trigger, a program."""
    async with traced(report()) as node:
        await (await node.server.node.start("report")).wait()
        spans = await node.until("run report", "task load")
    assert spans["run report"].parent is None
    assert parent_of(spans["task load"]) == id_of(spans["run report"])


@pytest.mark.parametrize(
    "header", ["", "nonsense", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", f"ff-{TRACE}-{PARENT}-01"]
)
async def test_a_malformed_header_begins_a_trace(header: str) -> None:
    """W3C Trace Context: it is ignored."""
    async with traced() as node:
        await node.server.http.get("/version", headers={"traceparent": header})
        (span,) = (await node.until("GET /api/v1/version")).values()
    assert span.parent is None
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" != TRACE


async def test_a_caller_that_does_not_sample_is_not_recorded() -> None:
    """W3C Trace Context: the caller's decision holds for the run too."""
    async with traced(report()) as node:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
        run = (await node.server.http.post("/workflows/report/runs", json={"params": {}}, headers=headers)).json()["id"]
        await node.server.node.run_handle(run).wait()
        assert node.spans() == {}


async def test_without_a_collector_nothing_is_traced(tmp_path: Path) -> None:
    """Ops: no cost; the run has no trace, even if the request has."""
    async with tm.Node(f"sqlite:///{tmp_path}/t.db", load=report()) as node, served(node) as server:
        run = (await server.http.post("/workflows/report/runs", json={"params": {}}, headers=HEADERS)).json()["id"]
        await node.run_handle(run).wait()
        (record,) = await node.store.runs.load([run])
    assert record.run.trace is None
    assert isinstance(node.spans, NoSpans)


def test_tidemill_imports_no_opentelemetry() -> None:
    """The extra is imported when a collector is named."""
    program = "import sys, tidemill as tm; tm.Node(); print([one for one in sys.modules if 'opentelemetry' in one])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("endpoint", "environment", "expected"),
    [
        ("http://collector:4318", {}, "http://collector:4318/v1/traces"),
        ("http://collector:4318/v1/traces", {}, "http://collector:4318/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318"}, "http://other:4318/v1/traces"),
    ],
)
def test_the_collector_is_named_by_the_setting_or_by_opentelemetry(
    endpoint: str | None, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ops: `otlp_endpoint`, or OpenTelemetry's own variables."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made: list[str] = []

    class Recorded(otlp_spans.OtlpSpans):
        def __init__(self, exporter: Any) -> None:
            made.append(exporter._endpoint)

    monkeypatch.setattr(otlp_spans, "OtlpSpans", Recorded)
    make_span_recorder(endpoint, environment)
    assert made == [expected]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(OperationError, match=r"pip install 'tidemill\[opentelemetry\]'"):
        make_span_recorder("http://collector:4318", {})


def test_a_stored_trace_is_read_back() -> None:
    parent = TraceContext(TRACE, PARENT)
    for stored in (StoredTrace.new(parent), StoredTrace.new(None), StoredTrace.new(parent._replace(is_sampled=False))):
        assert StoredTrace.parse(stored.to_text()) == stored
    assert StoredTrace.parse("damaged") is None


async def test_a_collector_that_hangs_does_not_delay_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Ops: traces are worth less than a fast release."""
    release = threading.Event()

    class HangingSpans(NoSpans):
        is_enabled = True

        def close(self) -> None:
            release.wait(20)

    profile = NodeProfile(spans=HangingSpans())
    async with asyncio.timeout(10), tm.Node(settings={"unload_timeout": "50ms"}, _profile=profile):
        pass
    release.set()
    assert "spans.not_sent" in caplog.messages
