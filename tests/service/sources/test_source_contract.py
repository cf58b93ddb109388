"""`tm.testing.sources`: a good source passes every check; one that breaks a promise fails the check of it."""

import asyncio
import csv
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pytest
from pyarrow import parquet

import tidemill as tm
from tidemill.testing.sources import Check, SourceUnderTest, checks


class Topic:
    """A server in memory: numbered payloads, the number of acknowledged ones, and its connections."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.acknowledged = 0
        self.dropped = 0
        self.connections = 0
        self.is_up = True
        self.changed = asyncio.Event()

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Subscription:
    """A good source; the classes below break one promise each."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    async def start(self, checkpoint: int | None, context: tm.sources.SourceContext) -> AsyncIterator[tuple[Any, Any]]:
        self.check_up()
        return self.read(self.skip_dropped(self.topic.acknowledged if checkpoint is None else checkpoint, context))

    def skip_dropped(self, position: int, context: tm.sources.SourceContext) -> int:
        if position < self.topic.dropped:
            context.report_gap(f"{self.topic.dropped - position} events were dropped")
        return max(position, self.topic.dropped)

    def check_up(self) -> None:
        if not self.topic.is_up:
            raise ConnectionError("the topic is down")

    async def read(self, position: int) -> AsyncIterator[tuple[Any, Any]]:
        self.topic.connections += 1
        try:
            while True:
                self.check_up()
                if position >= len(self.topic.payloads):
                    await self.topic.changed.wait()
                    continue
                payload = self.topic.payloads[position]
                position += 1
                yield self.delivery(payload, position)
                self.topic.acknowledged = position
        finally:
            self.topic.connections -= 1

    def delivery(self, payload: bytes, position: int) -> tuple[Any, Any]:
        return payload, position


class Reversing(Subscription):
    async def read(self, position: int) -> AsyncIterator[tuple[Any, Any]]:
        await self.topic.changed.wait()
        async for payload, after in super().read(position):
            pair = self.topic.payloads[3:1:-1] if after in (3, 4) else None
            yield (payload if pair is None else pair[after - 3]), after


class OffByOne(Subscription):
    def delivery(self, payload: bytes, position: int) -> tuple[Any, Any]:
        return payload, position - 1


class TooFar(Subscription):
    """Says that its position has moved further than it has."""

    async def read(self, position: int) -> AsyncIterator[Any]:
        yield tm.sources.Moved(position + 1)
        async for pair in super().read(position):
            yield pair


class FromTheStart(Subscription):
    async def start(self, checkpoint: int | None, context: tm.sources.SourceContext) -> AsyncIterator[tuple[Any, Any]]:
        return await super().start(0, context)


class Hasty(Subscription):
    """Acknowledges before it delivers."""

    def delivery(self, payload: bytes, position: int) -> tuple[Any, Any]:
        self.topic.acknowledged = position
        return payload, position


class Unstorable(Subscription):
    def delivery(self, payload: bytes, position: int) -> tuple[Any, Any]:
        return payload, object()


class Leaking(Subscription):
    async def read(self, position: int) -> AsyncIterator[tuple[Any, Any]]:
        self.topic.connections += 1
        async for pair in super().read(position):
            yield pair


class Decoding(Subscription):
    """Raises for an invalid event instead of delivering it."""

    def delivery(self, payload: bytes, position: int) -> tuple[Any, Any]:
        return msgspec.json.decode(payload), position


class Greedy(Subscription):
    """Reads everything into memory."""

    async def read(self, position: int) -> AsyncIterator[tuple[Any, Any]]:
        kept = [bytes(bytearray(payload)) for payload in self.topic.payloads]
        async for pair in super().read(position):
            yield pair
        del kept


class Silent(Subscription):
    """Waits for the server instead of reporting that it is away."""

    def check_up(self) -> None:
        pass


class Lazy(Subscription):
    """Connects in its iterator, and so is live for a moment while the server is away."""

    async def start(self, checkpoint: int | None, context: tm.sources.SourceContext) -> AsyncIterator[tuple[Any, Any]]:
        return self.read(checkpoint or 0)


class Forgetful(Subscription):
    """Continues at the end after the server was away."""

    async def start(self, checkpoint: int | None, context: tm.sources.SourceContext) -> AsyncIterator[tuple[Any, Any]]:
        self.check_up()
        return self.read(len(self.topic.payloads))


class Alarmist(Subscription):
    """Reports a gap whenever it continues."""

    def skip_dropped(self, position: int, context: tm.sources.SourceContext) -> int:
        if position:
            context.report_gap("events may be missing")
        return super().skip_dropped(position, context)


class Discreet(Subscription):
    """Continues after the events that are missing, and keeps quiet about them."""

    def skip_dropped(self, position: int, context: tm.sources.SourceContext) -> int:
        return max(position, self.topic.dropped)


class MemoryServer(SourceUnderTest):
    def __init__(self, source_class: type[Subscription] = Subscription) -> None:
        self.topic = Topic()
        self.source_class = source_class

    def make_source(self) -> tm.Source:
        return self.source_class(self.topic)

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        self.topic.payloads += map(msgspec.json.encode, events)
        self.topic.notify()

    async def append_invalid(self) -> None:
        self.topic.payloads.append(b"{")
        self.topic.notify()

    async def stop_server(self) -> None:
        self.topic.is_up = False
        self.topic.notify()

    async def start_server(self) -> None:
        self.topic.is_up = True

    async def lose_events(self) -> None:
        self.topic.dropped = len(self.topic.payloads)

    async def open_connections(self) -> int | None:
        return self.topic.connections


@pytest.mark.parametrize("check", checks(loses=True))
async def test_a_good_source_passes_every_check(check: Check) -> None:
    await check(MemoryServer())


BROKEN = [
    ("delivers_in_order", Reversing, r"got \[0, 1, 3, 2, "),
    ("delivers_in_order", Unstorable, "cannot be stored"),
    ("resumes_after_every_checkpoint", OffByOne, "expected the events 1 to 7 in order; got .0, 1"),
    ("resumes_after_every_checkpoint", TooFar, "got 7 of 8 events"),
    ("repeats_nothing", FromTheStart, "expected the events 5 to 7 in order; got .0, 1"),
    ("acknowledges_after_delivery", Hasty, r"missing: \[0\]"),
    ("ends_when_cancelled", Leaking, "still has 1 connection"),
    ("survives_invalid_events", Decoding, "the event after an invalid one did not arrive"),
    ("waits_for_a_slow_consumer", Greedy, "the source took 20,"),
    ("reports_an_unreachable_server", Silent, "the source is live while its server is away"),
    ("reports_an_unreachable_server", Lazy, "`start` must connect before it returns the iterator"),
    ("reports_a_lost_connection", Silent, "the accumulator is live, not disconnected"),
    ("reports_no_false_gap", Alarmist, "the source reports a gap: ..events may be missing"),
    ("reports_a_gap", Discreet, "the source reports no gap"),
    ("counts_once_after_a_crash", OffByOne, r"repeated: \[\d+\]"),
    ("counts_once_after_a_crash", Forgetful, "the events after the crash did not arrive"),
    ("loses_nothing_when_the_server_dies", Forgetful, "got 0 of 1 events"),
    ("loses_nothing_when_the_server_dies", FromTheStart, r"repeated: \[0, 1, "),
]


def test_every_check_has_a_source_that_fails_it() -> None:
    """A check that cannot fail checks nothing."""
    assert {name for name, _, _ in BROKEN} == {check.__name__ for check in checks(loses=True)}
    assert set(checks(resumes=False, server=False)) < set(checks(server=False)) < set(checks())
    assert set(checks()) < set(checks(loses=True))


@pytest.mark.parametrize(("name", "source_class", "finding"), BROKEN)
async def test_a_source_that_breaks_a_promise_fails_its_check(
    name: str, source_class: type[Subscription], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.testing.sources.reading.DEADLINE", 0.5)
    (check,) = (one for one in checks(loses=True) if one.__name__ == name)
    with pytest.raises(AssertionError, match=finding):
        await check(MemoryServer(source_class))


class File(SourceUnderTest):
    """A file that `tm.sources.Tail` follows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def make_source(self) -> tm.Source:
        return tm.sources.Tail(self.path, every="5ms")

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        with self.path.open("ab") as file:
            file.writelines(msgspec.json.encode(event) + b"\n" for event in events)

    async def append_invalid(self) -> None:
        with self.path.open("ab") as file:
            file.write(b"Traceback (most recent call last):\n")


class FolderOfFiles(SourceUnderTest):
    """A folder that gets a new file with every call."""

    def __init__(self, path: Path, format: Any) -> None:
        self.path = path
        self.format = format
        self.count = 0

    def make_source(self) -> tm.Source:
        return tm.sources.Folder(self.path, format=self.format, follow=True, every="5ms", text=["filler"])

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        self.count += 1
        hidden = self.path / f"_{self.count}"
        write_rows(hidden, self.format, events)
        hidden.rename(self.path / f"{self.count:04}.{self.format}")

    async def append_invalid(self) -> None:
        await self.append([{"number": "seven", "filler": ""}])


def write_rows(path: Path, format: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a file; one of Parquet has small row groups."""
    if format == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path, row_group_size=10)
    elif format == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


@pytest.mark.parametrize("format", ["ndjson", "csv", "parquet"])
@pytest.mark.parametrize("check", checks(server=False))
async def test_a_followed_folder_keeps_the_contract(check: Check, tmp_path: Path, format: str) -> None:
    await check(FolderOfFiles(tmp_path, format))


@pytest.mark.parametrize("check", checks(server=False))
async def test_a_tailed_file_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    await check(File(tmp_path / "app.log"))
