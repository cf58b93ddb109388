"""Files that are rotated: every complete line once, in order, wherever a reader stops and starts."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.sources.rotated_file import CHUNK_SIZE, FilePosition, RotatedFile

MAX_LINE = 1_000


class Writer:
    """A program that logs numbered lines, and a logrotate that shifts `log` to `log.1`, `log.1` to `log.2`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        self.path.touch()
        self.count = 0
        self.rotations = 0
        self.is_within_line = False

    def write(self, text: str = "") -> None:
        self._append(f"{self.count} {text}\n")
        self.is_within_line = False
        self.count += 1

    def begin_line(self) -> None:
        if not self.is_within_line:
            self._append(f"{self.count} beg")
            self.is_within_line = True

    def end_line(self) -> None:
        if self.is_within_line:
            self._append("inning\n")
            self.is_within_line = False
            self.count += 1

    def rotate(self) -> None:
        """Rename; a line that was begun is the last one of its file."""
        if self.is_within_line:
            self.is_within_line = False
            self.count += 1
        for number in range(self.rotations, 0, -1):
            self.path.with_name(f"log.{number}").rename(self.path.with_name(f"log.{number + 1}"))
        self.rotations += 1
        self.path.rename(self.path.with_name("log.1"))
        self.path.touch()

    def _append(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)


class Reader:
    """Reads until a test stops it, and continues in a new life."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position: FilePosition | None = None
        self.lines: list[bytes] = []
        self.file = RotatedFile(path, MAX_LINE)
        self.file.open(None, "start")

    def read(self) -> bool:
        """Read once; return whether there was something."""
        found = self.file.read_lines()
        for line, self.position in found:
            self.lines.append(line)
        return bool(found)

    def read_all(self) -> None:
        """Read until nothing comes in a row of pauses: two for each file that may be empty."""
        pauses = 0
        limit = 2 * len(list(self.path.parent.iterdir())) + 2
        while pauses < limit:
            pauses = 0 if self.read() else pauses + 1

    def restart(self) -> None:
        self.file.close()
        self.file = RotatedFile(self.path, MAX_LINE)
        self.file.open(self.position, "start")

    def numbers(self) -> list[int]:
        return [int(line.split()[0]) for line in self.lines]


def opened(folder: Path) -> tuple[Writer, Reader]:
    writer = Writer(folder)
    return writer, Reader(writer.path)


STEPS = ("write", "write", "begin_line", "end_line", "rotate", "read", "restart")


@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_every_line_is_read_once_through_any_rotations_and_restarts(steps: list[str]) -> None:
    """G-6: the position after a line is enough to continue, also in a file that was renamed meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        writer, reader = opened(Path(folder))
        writer.write()
        reader.read()  # from here on there is a position
        for step in steps:
            target = reader if hasattr(reader, step) else writer
            getattr(target, step)()
        writer.end_line()
        writer.write()  # the last line of a rotated file may lack its end, and counts when the next file is written to
        reader.read_all()
        reader.file.close()
        assert reader.numbers() == list(range(writer.count))
        assert reader.file.gap is None


def test_a_line_counts_when_its_end_is_written(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path)
    writer.begin_line()
    assert not reader.read()
    writer.end_line()
    assert reader.read()
    assert reader.lines == [b"0 beginning"]


def test_a_writer_that_has_not_noticed_the_rotation_yet_is_waited_for(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path)
    with writer.path.open("a") as late:
        late.write("0\n")
        late.flush()
        reader.read()
        writer.rotate()
        reader.read_all()  # while the new file is empty, however long that takes
        late.write("1\n")
    writer.count = 2
    writer.write()
    reader.read_all()
    assert reader.numbers() == [0, 1, 2]


def test_a_truncated_file_is_read_from_its_beginning_and_the_gap_is_named(tmp_path: Path) -> None:
    """Rotation with copytruncate: what was written between the copy and the truncation is lost."""
    writer, reader = opened(tmp_path)
    writer.write("a longer line")
    reader.read()
    writer.path.write_text("")
    writer.write()
    reader.read_all()
    assert reader.numbers() == [0, 1]
    assert reader.file.gap is not None
    assert "was truncated after byte 16 was read" in reader.file.gap


def test_a_truncated_file_that_has_grown_again_is_read_from_its_beginning(tmp_path: Path) -> None:
    """It is as long as before, or longer: its beginning tells that it is not what was read."""
    writer, reader = opened(tmp_path)
    writer.write()
    reader.read()
    writer.path.write_text("")
    writer.write("a longer line")
    writer.write()
    reader.read_all()
    assert reader.numbers() == [0, 1, 2]
    assert reader.file.gap is not None


def test_another_file_with_the_same_inode_is_not_mistaken_for_the_first(tmp_path: Path) -> None:
    """A file system gives the inode of a deleted file to a new one; its beginning tells them apart."""
    writer, reader = opened(tmp_path)
    writer.write("first")
    reader.read()
    writer.path.write_text("1 second\n2 third\n")
    reader.restart()
    reader.read_all()
    assert reader.numbers() == [0, 1, 2]
    assert reader.file.gap is not None
    assert "lines after its byte 8 may be lost" in reader.file.gap


def test_a_position_whose_file_is_gone_is_a_gap(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path)
    writer.write()
    reader.read()
    writer.rotate()
    writer.write()
    (tmp_path / "log.1").rename(tmp_path / "log.1.gz")  # compressed
    reader.restart()
    reader.read_all()
    assert reader.numbers() == [0, 1]
    assert reader.file.gap is not None


def test_files_that_were_written_after_one_that_is_gone_are_read(tmp_path: Path) -> None:
    """Two rotations with delaycompress: the older file is compressed, and the newer one was never read."""
    writer, reader = opened(tmp_path)
    writer.write()
    reader.read_all()
    for number in (1, 2):
        writer.path.rename(tmp_path / "log.1")
        writer.write()
        if number == 1:
            (tmp_path / "log.1").rename(tmp_path / "log.2.gz")
            later = writer.path.stat().st_mtime_ns + 10**9
            os.utime(writer.path, ns=(later, later))
    reader.restart()
    reader.read_all()
    assert reader.numbers() == [0, 1, 2]
    assert reader.file.gap is not None


@pytest.mark.parametrize("is_away", [True, False])
def test_a_file_that_was_copied_and_truncated_is_finished_in_its_copy(tmp_path: Path, is_away: bool) -> None:
    """Rotation with copytruncate: the copy begins as what was read, and has the lines that were not."""
    writer, reader = opened(tmp_path)
    writer.write("first")
    reader.read_all()
    writer.write("second, which is a longer line")
    shutil.copy2(writer.path, tmp_path / "log.1")
    os.truncate(writer.path, 0)
    writer.write()
    if is_away:
        reader.restart()
    reader.read_all()
    assert reader.numbers() == [0, 1, 2]
    assert reader.file.gap is not None
    assert "is finished in 'log.1'" in reader.file.gap


def test_the_rest_of_a_line_that_is_too_long_is_no_line_of_the_next_life(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path)
    writer.write("x" * 3 * CHUNK_SIZE)
    writer.write()
    while not reader.lines:
        reader.read()
    reader.restart()
    reader.read_all()
    assert [len(line) for line in reader.lines] == [MAX_LINE, 2]


def test_a_file_that_was_deleted_is_missing_and_one_that_was_renamed_is_not(tmp_path: Path) -> None:
    """A writer may still hold the renamed one, whatever its name is now."""
    writer, reader = opened(tmp_path)
    writer.write()
    reader.read_all()
    writer.path.rename(tmp_path / "kept")
    reader.read_all()
    (tmp_path / "kept").unlink()
    assert not reader.read()
    with pytest.raises(FileNotFoundError, match="was deleted"):
        reader.read()


def test_a_line_that_is_too_long_is_cut_and_the_next_is_read(tmp_path: Path) -> None:
    """A dead letter shows its beginning; memory stays bounded."""
    writer, reader = opened(tmp_path)
    writer.write("x" * 3 * CHUNK_SIZE)
    writer.write()
    writer.write("y" * MAX_LINE * 2)
    reader.read_all()
    assert [len(line) for line in reader.lines] == [MAX_LINE, 2, MAX_LINE * 2 + 2]
    assert reader.numbers() == [0, 1, 2]


def test_only_new_lines_are_read_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("0 " + "x" * 2 * CHUNK_SIZE + "\n1 begun")
    file = RotatedFile(path, MAX_LINE)
    file.open(None, "end")
    with path.open("a") as writer:
        writer.write(" and ended\n2\n")
    assert [line for line, _ in file.read_lines()] == [b"1 begun and ended", b"2"]
    file.close()
