"""Author modules that have the names of installed ones: each side gets its own."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

NAMES = ("cel", "json", "queue", "rich", "msgspec", "signal", "tokenize")

FLOW = """
import tidemill as tm
import cel, json, queue


@tm.passthrough
def book(event: dict) -> float | None:
    return event["bid"]


market = tm.Reactor("market", [book])
maker = tm.Graph("maker", reactor=market)


@maker.node
def decide(book: float) -> float:
    return book


flow = tm.Workflow("flow", triggers=[tm.on_firing("market", when="payload.book > 100.0")])


@flow.task
def here() -> str:
    import signal
    return cel.OWNER + json.OWNER + queue.OWNER + signal.OWNER


@flow.task(executor="subprocess")
def far(here: str) -> str:
    import rich
    return here + cel.OWNER + rich.OWNER
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A flow whose neighbours have the names of modules that Python and Tidemill import."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"OWNER = '{name} '\n")
    (tmp_path / "flow.py").write_text(FLOW)
    return tmp_path


def run(folder: Path, *arguments: str, program: Sequence[str] = ("-m", "tidemill")) -> tuple[int, str]:
    """Run the command line in a folder; return the exit code and all output."""
    ended = subprocess.run(
        [sys.executable, *program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("command", [["graph", "check"], ["workflow", "check"], ["graph", "show"]])
def test_a_file_with_such_neighbours_is_checked(folder: Path, command: list[str]) -> None:
    """Conditions are compiled with the installed `cel`, tables are drawn with the installed `rich`."""
    code, printed = run(folder, *command, "flow.py")
    assert (code, "Traceback" in printed) == (0, False), printed


def test_a_run_gets_the_neighbours_and_tidemill_its_own(folder: Path) -> None:
    """In this process, and in the child of a fork server."""
    code, printed = run(folder, "run", "flow.py", "-q", "-o", "json")
    assert code == 0, printed
    assert '"far": "cel json queue signal cel rich "' in printed


def test_other_folders_are_no_better(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The folder of the file counts, not the one that the command runs in."""
    code, printed = run(tmp_path_factory.mktemp("elsewhere"), "run", str(folder / "flow.py"), "-q", "-o", "json")
    assert code == 0, printed
    assert '"far": "cel json queue signal cel rich "' in printed


def test_a_package_has_them_too(folder: Path) -> None:
    """P-7: `cel` is a module of the package; the others lie beside it and are not part of it."""
    (folder / "package.toml").write_text(
        '[package]\nname = "shop"\nversion = "1.0.0"\nmodules = ["shop", "cel", "rich", "msgspec"]\n'
    )
    (folder / "shop.py").write_text(FLOW.replace("json.OWNER + queue.OWNER + signal.OWNER", "json.dumps([])"))
    (folder / "flow.py").unlink()
    code, printed = run(folder, "package", "check", ".")
    assert code == 0, printed
    code, printed = run(folder, program=["-c", PROGRAM])
    assert printed.splitlines()[-1:] == ["success cel []cel rich "], printed


PROGRAM = """
import sys
del sys.path[0]  # else Python itself would import this folder's modules in place of its own
import asyncio
import tidemill as tm

async def main():
    async with tm.Node(load=["."]) as node:
        await node.push("book", {"bid": 200.0})
        await node.settle()
        [run] = await node.runs()
        result = await run.wait(timeout=30)
        print(result.state, result.outputs.get("far"))

asyncio.run(main())
"""


def test_a_script_with_its_own_cel_gets_an_error_with_the_remedy(folder: Path) -> None:
    """Python itself puts a script's folder first, so only the error can help."""
    for name in set(NAMES) - {"cel"}:
        (folder / f"{name}.py").unlink()
    (folder / "flow.py").write_text(FLOW.replace("import cel, json, queue", "import cel") + "\n\nflow.check()\n")
    code, printed = run(folder, program=["flow.py"])
    assert code == 1
    assert (
        f"when= needs the installed module 'cel', but {folder / 'cel.py'} is imported in its place: rename" in printed
    )
