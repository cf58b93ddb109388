"""`tm.sources.Tail` in a node: where it begins, restarts before the first line, and files that are deleted."""

import shutil
from pathlib import Path

import pytest

import tidemill as tm
from tests.service.sources.test_websocket_source import Reading
from tidemill.testing.sources.reading import wait_until


def tailing(path: Path, seen: list[int]) -> tm.Reactor:
    @tm.stream(tm.sources.Tail(path, begin="end", every="5ms"))
    def lines(event: int) -> int:
        seen.append(event)
        return event

    return tm.Reactor("logs", [lines], durability="boundary")


async def until_health(node: tm.Node, health: str) -> None:
    state = node.reactor("logs").state
    await wait_until(lambda: state().accumulators["lines"].health == health, lambda: str(state()))


def append(path: Path, *numbers: int) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in numbers)


@pytest.mark.parametrize("exists", [True, False])
async def test_only_lines_of_before_the_first_start_are_skipped(tmp_path: Path, exists: bool) -> None:
    """G-24: those written while the node is down count, also if none was delivered before; so does a later file."""
    path, seen, store = tmp_path / "app.log", list[int](), f"sqlite:///{tmp_path}/node.db"
    if exists:
        append(path, 1, 2)
    async with tm.Node(store=store, load=[tailing(path, seen)]) as node:
        await until_health(node, "live" if exists else "disconnected")
    append(path, 3, 4)
    async with tm.Node(store=store, load=[tailing(path, seen)]) as node:
        await wait_until(lambda: len(seen) == 2, lambda: str(seen))
        append(path, 5)
        await wait_until(lambda: len(seen) == 3, lambda: str(seen))
        assert node.reactor("logs").events() == []
    async with tm.Node(store=store, load=[tailing(path, seen)]):
        append(path, 6)
        await wait_until(lambda: len(seen) == 4, lambda: str(seen))
    assert seen == [3, 4, 5, 6]


@pytest.mark.parametrize("is_whole_folder", [True, False])
async def test_a_deleted_file_is_disconnected_until_there_is_another(tmp_path: Path, is_whole_folder: bool) -> None:
    """G-9: the state says so, and the new file is read from its start."""
    path, seen = tmp_path / "logs" / "app.log", list[int]()
    path.parent.mkdir()
    path.touch()
    async with tm.Node(load=[tailing(path, seen)]) as node:
        await until_health(node, "live")
        append(path, 1)
        await wait_until(lambda: seen == [1], lambda: str(seen))
        shutil.rmtree(path.parent) if is_whole_folder else path.unlink()
        await until_health(node, "disconnected")
        path.parent.mkdir(exist_ok=True)
        append(path, 2)
        await wait_until(lambda: seen == [1, 2], lambda: str(seen))
        await until_health(node, "live")


async def test_a_checkpoint_of_another_source_is_refused(tmp_path: Path) -> None:
    """An accumulator whose source was replaced must not guess where to continue."""
    for source in (tm.sources.Tail(tmp_path / "log"), tm.sources.Folder(tmp_path, format="csv")):
        with pytest.raises(tm.Fail, match="the checkpoint 7 is of another source; rename the accumulator"):
            await source.start(7, Reading().context)
