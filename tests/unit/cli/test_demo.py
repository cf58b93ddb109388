"""`tidemill demo`: the examples get into a folder of the user, and nothing there is overwritten."""

from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tidemill.cli import example_files
from tidemill.cli.example_files import copy_examples, find_examples
from tidemill.kernel.errors import OperationError, RequestError

NAMES = sorted(one.name for one in (ROOT / "examples").glob("*.py"))


def test_the_examples_of_a_clone_are_found() -> None:
    """An editable install has no copy of them: what is edited is what runs."""
    assert [one.name for one in find_examples()] == NAMES


def test_the_examples_are_copied_once(tmp_path: Path) -> None:
    """Into a folder that is created; the second time there is nothing left to write."""
    folder = tmp_path / "new" / "demo"
    assert copy_examples(folder, keep=False) == (NAMES, [])
    assert sorted(one.name for one in folder.glob("*.py")) == NAMES
    assert copy_examples(folder, keep=False) == ([], [])


def test_a_changed_example_is_not_overwritten(tmp_path: Path) -> None:
    """The error names the file and both ways out, and nothing is written."""
    (tmp_path / "sensors.py").write_text("HOT = 3\n")
    with pytest.raises(RequestError) as refused:
        copy_examples(tmp_path, keep=False)
    remedy = f"keep what is there with `tidemill demo {tmp_path} --keep`, or name another folder"
    assert str(refused.value) == f"{tmp_path / 'sensors.py'} differs from its example: {remedy}"
    assert [one.name for one in tmp_path.iterdir()] == ["sensors.py"]


def upgrade(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the installed examples be those of a newer version, in which `sensors.py` differs."""
    folder.mkdir()
    for one in find_examples():
        (folder / one.name).write_bytes(one.read_bytes() + (b"NEWER = 1\n" if one.name == "sensors.py" else b""))
    newer = sorted(folder.glob("*.py"))
    monkeypatch.setattr(example_files, "find_examples", lambda: newer)


@pytest.mark.parametrize("keep", [False, True])
def test_an_example_of_an_older_version_is_replaced(
    keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-8: after an upgrade the same command works: the user has changed nothing."""
    folder = tmp_path / "demo"
    copy_examples(folder, keep=False)
    upgrade(monkeypatch, tmp_path / "newer")
    assert copy_examples(folder, keep=keep) == (["sensors.py"], [])
    assert (folder / "sensors.py").read_text().endswith("NEWER = 1\n")
    assert copy_examples(folder, keep=keep) == ([], [])


@pytest.mark.parametrize("record", [None, b"{", b'{"sensors.py": "0"}'])
def test_a_changed_example_of_an_older_version_is_not_replaced(
    record: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one of which it is not known whether it was changed."""
    folder = tmp_path / "demo"
    copy_examples(folder, keep=False)
    if record is None:
        (folder / "sensors.py").write_text("HOT = 3\n")
    else:
        (folder / example_files.DIGESTS_FILE).write_bytes(record)
    before = (folder / "sensors.py").read_text()
    upgrade(monkeypatch, tmp_path / "newer")
    with pytest.raises(RequestError, match=r"sensors\.py differs from its example"):
        copy_examples(folder, keep=False)
    assert copy_examples(folder, keep=True) == ([], ["sensors.py"])
    assert (folder / "sensors.py").read_text() == before


def test_changes_are_kept_on_request(tmp_path: Path) -> None:
    """And what is missing is written."""
    (tmp_path / "sensors.py").write_text("HOT = 3\n")
    copied = copy_examples(tmp_path, keep=True)
    assert copied.kept == ["sensors.py"]
    assert copied.written == [name for name in NAMES if name != "sensors.py"]
    assert (tmp_path / "sensors.py").read_text() == "HOT = 3\n"


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationError, match=r"cannot be written to .*: name another folder"):
        copy_examples(tmp_path / "file", keep=False)
