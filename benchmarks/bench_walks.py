"""The walk of one operation through the code: calls, files crossed, and switches between files.

A reader who follows an operation opens each of these files. A profile hook records every call of Tidemill's own
functions, on all threads, while one warm operation runs; a resumed coroutine counts as a call. The fewest of several
repetitions counts, so that ticks of the node in the background do not.

python -m benchmarks.bench_walks [--quick] [--files]     --files lists the files of each walk
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import tidemill as tm
from benchmarks.measure import console, keep, show, verdict
from tidemill.packages.status import PackageStatus
from tidemill.server.app import make_app
from tidemill.server.authentication import NoAuthentication
from tidemill.server.serving import LOOPBACK, serving

SOURCE = str(Path(tm.__file__).parent)
CALM = tm.Settings(tick_interval="60s")
LIMITS = {
    "push of a dict": (15, None, None),
    "push to firing of an async sequential graph": (80, None, 35),
    "durable push to receipt": (None, 16, 35),
    "two-task run": (480, 42, 220),
    "start over HTTP": (500, 45, None),
    "save to live": (None, 60, None),
}
"""The most calls, files and switches of a walk."""


FLOW = """import tidemill as tm

flow = tm.Workflow("flow")


@flow.task
def one() -> int:
    return {value}
"""


START = (
    "POST /api/v1/workflows/flow/runs HTTP/1.1\r\nhost: {host}\r\n"
    "content-type: application/json\r\ncontent-length: 13\r\n\r\n"
    '{{"params":{{}}}}'
)


class Quote(tm.Boundary):
    """An event that pushers may give as a dict."""

    price: float


class Walk(NamedTuple):
    """The files of every call that an operation made, in order."""

    steps: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """Return the files that it crossed, each once, sorted."""
        return sorted(set(self.steps))

    @property
    def switches(self) -> int:
        """Count how often a call was in another file than the call before it."""
        return sum(one != other for one, other in zip(self.steps, self.steps[1:], strict=False))


class Recorder:
    """A profile hook for all threads that records the file of each call of Tidemill's code while it records."""

    def __init__(self) -> None:
        self.steps: list[str] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.steps is not None and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            self.steps.append(frame.f_code.co_filename[len(SOURCE) + 1 :])

    def install(self) -> None:
        """Hook this thread, and every thread that starts from now on."""
        threading.setprofile(self)
        sys.setprofile(self)


Operation = Callable[[], Awaitable[Any]]
recorder = Recorder()


async def record(operation: Operation, repetitions: int, finish: Operation | None = None) -> Walk:
    """Return the shortest walk of several repetitions, after two that warm up; `finish` waits for what goes on."""
    for _ in range(2):
        await operation()
    return min([await _record_once(operation, finish) for _ in range(repetitions)], key=lambda walk: len(walk.steps))


async def _record_once(operation: Operation, finish: Operation | None) -> Walk:
    recorder.steps = steps = []
    try:
        await operation()
    finally:
        recorder.steps = None
    if finish is not None:
        await finish()
    return Walk(tuple(steps))


async def walk_pushes(repetitions: int) -> dict[str, Walk]:
    """Return the walks of a push by handle and by `push`, and of one that fires an async sequential graph."""

    @tm.passthrough
    def prices(event: int) -> int:
        return event

    @tm.passthrough
    def orders(event: int) -> int:
        return event

    plain, queued = tm.Reactor("plain", [prices]), tm.Reactor("queued", [orders], strategy="sequential")
    double, slow = tm.Graph("double", reactor=plain), tm.Graph("slow", reactor=queued)

    @double.node
    def twice(prices: int) -> int:
        return 2 * prices

    @slow.node
    async def answer(orders: int) -> int:
        return orders

    @tm.passthrough
    def quotes(event: Quote) -> Quote:
        return event

    typed = tm.Reactor("typed", [quotes])
    read = tm.Graph("read", reactor=typed)

    @read.node
    def price(quotes: Quote) -> float:
        return quotes.price

    loaded = [plain, queued, typed, double, slow, read]
    async with tm.Node(load=loaded, settings=CALM) as node:
        await node.settle()
        push = node.handle("prices")

        async def by_handle() -> None:
            push(1)

        async def to_firing() -> None:
            await node.push("orders", 1)
            await node.reactor("queued").next_firing()

        return {
            "push by handle": await record(by_handle, repetitions),
            "push": await record(lambda: node.push("prices", 1), repetitions),
            "push of a dict": await record(lambda: node.push("quotes", {"price": 1.0}), repetitions),
            "push to firing of an async sequential graph": await record(to_firing, repetitions),
        }


async def walk_durable_push(repetitions: int, folder: str) -> Walk:
    """Return the walk of a push that is committed before its receipt."""

    @tm.passthrough
    def prices(event: int) -> int:
        return event

    reactor = tm.Reactor("market", [prices], durability="boundary")
    graph = tm.Graph("double", reactor=reactor)

    @graph.node
    def twice(prices: int) -> int:
        return 2 * prices

    async with tm.Node(f"sqlite:///{folder}/push.db", load=[reactor, graph], settings=CALM) as node:
        await node.settle()
        return await record(lambda: node.push("prices", 1), repetitions)


async def walk_run(repetitions: int, folder: str) -> Walk:
    """Return the walk of a run of two tasks, from its start to its result."""
    flow = tm.Workflow("flow")

    @flow.task
    async def first() -> int:
        return 1

    @flow.task
    async def second(first: int) -> int:
        return first + 1

    async with tm.Node(f"sqlite:///{folder}/run.db", load=[flow], settings=CALM) as node:

        async def run() -> None:
            await (await node.start("flow")).wait()

        return await record(run, repetitions)


async def walk_http_start(repetitions: int, folder: str) -> Walk:
    """Return the walk of a start over HTTP, from the request to the answer."""
    flow = tm.Workflow("flow")

    @flow.task
    async def first() -> int:
        return 1

    async with (
        tm.Node(f"sqlite:///{folder}/start.db", load=[flow], settings=CALM) as node,
        serving(_until_answered(make_app(node, NoAuthentication())), LOOPBACK, 0) as url,
    ):
        host = url.rpartition("/")[2]
        reader, writer = await asyncio.open_connection(*host.split(":"))

        async def start() -> None:
            writer.write(START.format(host=host).encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert "201 created" in head, head
            await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))

        try:
            return await record(start, repetitions, node.settle)
        finally:
            writer.close()
            await writer.wait_closed()


def _until_answered(app: Any) -> Any:
    """Return the application, whose answers end the walk: the run goes on behind them."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        recorder.steps = None

    return serve


async def walk_save(repetitions: int, folder: str) -> Walk:
    """Return the walk from the save of a file with one workflow to its new version being loaded."""
    news: asyncio.Queue[PackageStatus] = asyncio.Queue()
    packages = Path(tempfile.mkdtemp(dir=folder))
    versions = iter(range(1, 1000))

    async def save() -> None:
        (packages / "flow.py").write_text(FLOW.format(value=next(versions)))
        while (await news.get()).state != "loaded":
            pass

    async with tm.Node(f"sqlite:///{folder}/save.db", settings=CALM) as node:
        await node.watch_folder(packages, news.put_nowait)
        return await record(save, repetitions)


async def walk_all(repetitions: int) -> dict[str, Walk]:
    """Return every walk by name."""
    with tempfile.TemporaryDirectory() as folder:
        return await walk_pushes(repetitions) | {
            "durable push to receipt": await walk_durable_push(repetitions, folder),
            "two-task run": await walk_run(repetitions, folder),
            "start over HTTP": await walk_http_start(repetitions, folder),
            "save to live": await walk_save(repetitions, folder),
        }


def main() -> None:
    """Print calls, files and switches of each walk, and whether they stay within their limits."""
    recorder.install()
    walks = asyncio.run(walk_all(3 if "--quick" in sys.argv else 10))
    sys.setprofile(None)
    rows = [[name, *map(str, (len(walk.steps), len(walk.files), walk.switches))] for name, walk in walks.items()]
    show("Walks through the code", ["walk", "calls", "files", "switches"], rows)
    verdicts = []
    for name, limits in LIMITS.items():
        walk = walks[name]
        measures = {"calls": len(walk.steps), "files": len(walk.files), "switches": walk.switches}
        verdicts += [
            verdict(f"{name}, {measure}", value, limit, at_least=False)
            for (measure, value), limit in zip(measures.items(), limits, strict=True)
            if limit is not None
        ]
    keep("walks", {"verdicts": verdicts})
    if "--files" in sys.argv:
        for name, walk in walks.items():
            console.print(f"\n{name}:", *(f"  {walk.steps.count(file):4} {file}" for file in walk.files), sep="\n")


if __name__ == "__main__":
    main()
