"""`tm.sources.Folder`: the order of files and rows, checkpoints, time, and files that come late or are damaged."""

import asyncio
import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

import tidemill as tm
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.sources.pacing import event_time
from tidemill.sources.row_files import BATCH_SIZE, parse_cell
from tidemill.testing.sources.reading import wait_until


class Replay:
    """Reads a folder on a virtual clock, event by event."""

    def __init__(self, source: tm.sources.Folder) -> None:
        self.source = source
        self.gaps: list[str] = []
        self.clock = VirtualClock()
        self.context = tm.sources.SourceContext("rows", Settings(), self.clock, self.gaps.append)
        self.events: list[tuple[Any, Any]] = []
        self.has_ended = False

    async def run(self, checkpoint: Any = None) -> list[tuple[Any, Any]]:
        """Read until the source ends."""
        async for delivery in await self.source.start(checkpoint, self.context):
            self.events += delivery
        self.has_ended = True
        return self.events

    async def advance(self, seconds: float) -> None:
        """Move time, and wait until the source has delivered what is due: it sleeps again then, or has ended."""
        self.clock.advance_to(self.clock.monotonic() + seconds)
        await wait_until(
            lambda: self.has_ended or (self.clock.next_wakeup() is not None and not self.clock.has_pending_wakeups),
            lambda: f"the source neither sleeps nor ends: {self.events}",
        )


async def test_files_are_read_in_the_order_of_their_names_also_in_folders(tmp_path: Path) -> None:
    for name, text in {
        "b.ndjson": "3\n",
        "a.ndjson": "1\n\n2\n",
        "day=1/x.ndjson": "4\n",
        "_new.ndjson": "9\n",
        "_log/x.ndjson": "9\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = await Replay(tm.sources.Folder(tmp_path, "**/*.ndjson", format="ndjson")).run()
    assert found == [
        (b"1", ["a.ndjson", 1]),
        (b"2", ["a.ndjson", None]),
        (b"3", ["b.ndjson", None]),
        (b"4", ["day=1/x.ndjson", None]),
    ]


async def test_a_replay_ends_and_every_row_of_a_large_file_is_read_from_any_row_on(tmp_path: Path) -> None:
    """G-6: row groups and batches are skipped, not read."""
    count = 3 * BATCH_SIZE + 7
    table = pyarrow.Table.from_pylist([{"n": number} for number in range(count)])
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=BATCH_SIZE + 50)
    source = tm.sources.Folder(tmp_path, format="parquet")
    whole = await Replay(source).run()
    assert [event["n"] for event, _ in whole] == list(range(count))
    for first in (1, BATCH_SIZE, BATCH_SIZE + 49, BATCH_SIZE + 50, count - 1):
        later = await Replay(source).run(whole[first - 1][1])
        assert later == whole[first:]
    assert await Replay(source).run(whole[-1][1]) == []


async def test_cells_of_csv_are_values_and_compressed_files_are_read(tmp_path: Path) -> None:
    text = '\ufeffname,zip,code,price,ok,note\n"a, b",007,12,1.5,true,\nc,8,13,-2,false,x,too much\n'
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    found = await Replay(tm.sources.Folder(tmp_path, "*.csv.gz", format="csv", text=["code"])).run()
    assert [event for event, _ in found] == [
        {"name": "a, b", "zip": "007", "code": "12", "price": 1.5, "ok": True, "note": None},
        ["c", "8", "13", "-2", "false", "x", "too much"],
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-3", -3), ("1e3", 1000.0), ("1.50", 1.5), ("01", "01"), ("1_0", "1_0"), ("nan", "nan"), ("+1", "+1")],
)
def test_a_cell_is_a_number_if_json_would_read_one(text: str, value: Any) -> None:
    assert parse_cell(text) == value
    assert type(parse_cell(text)) is type(value)


async def test_rows_come_at_the_intervals_of_their_times(tmp_path: Path) -> None:
    """Ten times as fast as they were, on the clock of the node; a row without a time does not wait."""
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00", "2026-01-01T00:01:40Z", None, "2026-01-01T00:00:10Z"]
    rows = "".join(
        f'{{"n": {n}, "ts": {"null" if at is None else chr(34) + at + chr(34)}}}\n' for n, at in enumerate(times)
    )
    (tmp_path / "a.ndjson").write_text(rows + '{"n": 5, "ts": "2026-01-01T00:03:20Z"}\n')
    replay = Replay(tm.sources.Folder(tmp_path, format="ndjson", time="ts", speed=10.0))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(replay.run(), name="replay")
        counts = []
        for seconds in (0.0, 9.9, 0.1, 9.9, 0.1):
            await replay.advance(seconds)
            counts.append(len(replay.events))
        await running
    assert counts == [2, 2, 5, 5, 6]


@pytest.mark.parametrize(
    "value", ["2026-01-01T00:00:00", 1767225600, 1767225600.0, 1767225600_000, 1767225600_000_000, 1767225600 * 10**9]
)
def test_times_are_texts_or_numbers_of_any_unit(value: Any) -> None:
    assert event_time({"ts": value}, "ts") == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


async def test_a_followed_folder_waits_for_files_and_reports_those_that_come_too_late(tmp_path: Path) -> None:
    """G-20: a file that sorts before what was read cannot be read in order."""
    replay = Replay(tm.sources.Folder(tmp_path / "in", format="ndjson", follow=True, every="1s"))
    with pytest.raises(tm.sources.Disconnected, match="there is no folder") as raised:
        await replay.run()
    assert raised.value.retry_after == 1.0
    (tmp_path / "in").mkdir()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(replay.run(), name="replay")
        await replay.advance(0)
        for name in ("b", "a", "c"):
            (tmp_path / "in" / f"{name}.ndjson").write_text(f'"{name}"\n')
            await replay.advance(1)
        running.cancel()
    assert [event for event, _ in replay.events] == [b'"b"', b'"c"']
    assert replay.gaps == ["the file 'a.ndjson' appeared after 'b.ndjson' was read, and is not read: rename it"]


async def test_a_complete_file_may_be_removed_and_one_that_is_not_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "b.ndjson").write_text("1\n")
    source = tm.sources.Folder(tmp_path, format="ndjson")
    complete, cut = Replay(source), Replay(source)
    assert await complete.run(["a.ndjson", None]) == await cut.run(["a.ndjson", 7])
    assert complete.gaps == []
    assert cut.gaps == ["the file 'a.ndjson' is gone: its rows after row 7 are missing"]


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no parquet")
    with pytest.raises(tm.sources.Disconnected, match=r"the file 'a.parquet' cannot be read"):
        await Replay(tm.sources.Folder(tmp_path, format="parquet")).run()


async def test_a_replay_of_nothing_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(tm.Fail, match=r"no file in '.*' matches '\*.csv'"):
        await Replay(tm.sources.Folder(tmp_path, format="csv")).run()


async def test_a_replay_whose_files_were_read_and_removed_has_ended(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    [(_, checkpoint)] = await Replay(tm.sources.Folder(tmp_path, format="csv")).run()
    (tmp_path / "a.csv").unlink()
    later = Replay(tm.sources.Folder(tmp_path, format="csv"))
    assert (await later.run(checkpoint), later.gaps) == ([], [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "parket"}, "did you mean 'parquet'"),
        ({"format": "csv", "speed": 2.0}, "needs time="),
        ({"format": "csv", "speed": 0, "time": "ts"}, "a factor above 0"),
    ],
)
def test_a_mistake_shows_when_the_source_is_declared(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tm.DefinitionError, match=message):
        tm.sources.Folder("in", **options)
