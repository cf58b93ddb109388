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
from tidemill.sources.csv_records import MAX_ROW
from tidemill.sources.folder import event_time
from tidemill.sources.row_files import BATCH_SIZE, MAX_LINE, parse_cell
from tidemill.testing.sources.reading import wait_until


class Replay:
    """Reads a folder on a virtual clock, event by event."""

    def __init__(self, source: tm.sources.Folder) -> None:
        self.source = source
        self.gaps: list[str] = []
        self.clock = VirtualClock()
        self.context = tm.sources.SourceContext("rows", Settings(), self.clock, self.gaps.append)
        self.events: list[tuple[Any, Any]] = []
        self.moves: list[Any] = []
        self.has_ended = False

    async def run(self, checkpoint: Any = None) -> list[tuple[Any, Any]]:
        """Read until the source ends; return its events, each with its file and row."""
        async for delivery in await self.source.start(checkpoint, self.context):
            if isinstance(delivery, tm.sources.Moved):
                self.moves.append(delivery.checkpoint)
            else:
                assert isinstance(delivery, list)
                self.events += delivery
        self.has_ended = True
        return [(event, checkpoint[:2]) for event, checkpoint in self.events]

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


async def test_a_file_that_came_too_late_while_the_node_was_down_is_reported_once(tmp_path: Path) -> None:
    """G-24: it sorts before the position, so it is not read."""
    for name in ("a", "c"):
        (tmp_path / f"{name}.ndjson").write_text("1\n")
    first, second, third = (Replay(tm.sources.Folder(tmp_path, format="ndjson")) for _ in range(3))
    await first.run()
    (tmp_path / "_b").write_text("2\n")
    later = first.events[-1][1][2] + 1
    while (tmp_path / "_b").stat().st_ctime_ns < later:  # the clock of the file system
        (tmp_path / "_b").touch()
    (tmp_path / "_b").rename(tmp_path / "b.ndjson")
    assert await second.run(first.events[-1][1]) == []
    assert second.gaps == [
        "the file 'b.ndjson' appeared or was changed after 'c.ndjson' was read, and is not read: rename it"
    ]
    await third.run(second.moves[-1])
    assert third.gaps == []


LARGE = "y" * 140_000
UNBALANCED = 'a,b\n0,x\n1,"never closed\n' + "".join(f"{n},x\n" for n in range(2, 20_002))


@pytest.mark.parametrize(
    ("text", "damaged", "count"),
    [
        (f"a,b\n0,x\n1,{LARGE}\n2,x\n", f"1,{LARGE}", 2),
        (f"a,b\n0,x\n1,{'y' * 2_000_000}\n2,x\n", f"1,{'y' * (MAX_ROW - 2)}", 2),
        (UNBALANCED, '1,"never closed', 20_001),
        ('a,b\n0,x\n1,"never closed\n2,x\n3,x\n', '1,"never closed', 3),
        ("a,b\n0,x\n1,M\udcfcller\n2,x\n", "1,M\udcfcller", 2),
    ],
    ids=["large cell", "long line", "open quote", "open quote at the end", "latin-1"],
)
async def test_a_damaged_row_of_csv_is_a_dead_letter_and_the_others_are_read(
    tmp_path: Path, text: str, damaged: str, count: int
) -> None:
    """From any row on, and with the same numbers."""
    (tmp_path / "a.csv").write_bytes(text.encode(errors="surrogateescape"))
    source = tm.sources.Folder(tmp_path, format="csv")
    found = await Replay(source).run()
    assert found[1] == (damaged.encode(errors="surrogateescape"), ["a.csv", 2])
    assert [event["a"] for event, _ in found if not isinstance(event, bytes)] == [0, *range(2, count + 1)]
    assert await Replay(source).run(["a.csv", 2]) == found[2:]


async def test_a_number_with_too_many_digits_is_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"a\n1\n{'9' * 5_000}\n3\n")
    found = await Replay(tm.sources.Folder(tmp_path, format="csv")).run()
    assert [event["a"] for event, _ in found] == [1, "9" * 5_000, 3]


async def test_a_long_line_of_ndjson_is_cut_and_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b"\xef\xbb\xbf1\n" + b"2" * 3_000_000 + b"\n3\n")
    found = await Replay(tm.sources.Folder(tmp_path, format="ndjson")).run()
    assert [(len(event), checkpoint[1]) for event, checkpoint in found] == [(1, 1), (MAX_LINE, 2), (1, None)]


async def test_times_of_parquet_have_microseconds(tmp_path: Path) -> None:
    """What is finer is cut off: Python has no type for it."""
    nanoseconds = 1_767_225_600_000_001_999
    struct = pyarrow.struct([("ts", pyarrow.timestamp("ns"))])
    columns = {
        "ts": pyarrow.array([nanoseconds], pyarrow.timestamp("ns", "UTC")),
        "deep": pyarrow.array([[{"ts": nanoseconds}]], pyarrow.list_(struct)),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    [(event, _)] = await Replay(tm.sources.Folder(tmp_path, format="parquet")).run()
    assert event["ts"] == datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert event["deep"] == [{"ts": datetime(2026, 1, 1, 0, 0, 0, 1)}]


async def test_rows_before_the_end_of_a_cut_file_are_delivered(tmp_path: Path) -> None:
    """The error names the file, and the source continues with the row that could not be read."""
    lines = [b"%d" % (number * 7919 % 100_003) for number in range(5_000)]
    whole = gzip.compress(b"\n".join(lines) + b"\n")
    (tmp_path / "a.ndjson.gz").write_bytes(whole[: len(whole) // 2])
    replay = Replay(tm.sources.Folder(tmp_path, "*.gz", format="ndjson"))
    with pytest.raises(tm.sources.Disconnected, match=r"the file 'a.ndjson.gz' cannot be read: .*ended"):
        await replay.run()
    assert [event for event, _ in replay.events] == lines[: len(replay.events)]
    (tmp_path / "a.ndjson.gz").write_bytes(whole)
    rest = await Replay(replay.source).run(replay.events[-1][1])
    assert [event for event, _ in [*replay.events, *rest]] == lines
    assert len(rest) < len(lines)


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
    (tmp_path / "a.csv").write_bytes("Größe\n1\n".encode("latin-1"))
    with pytest.raises(
        tm.sources.Disconnected, match=r"the file 'a.csv' cannot be read: its first line, .*is not CSV in UTF"
    ):
        await Replay(tm.sources.Folder(tmp_path, format="csv")).run()


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
