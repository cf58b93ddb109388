"""The tutorials work from an installed wheel alone: no clone, no make."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest

from tests.architecture.sources import ROOT
from tests.system.test_dev import until
from tidemill.cli.export.export_files import FILES

TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a page in one language."""
    return [one["text"] for one in BLOCK.finditer(page.read_text(encoding="utf-8")) if one["language"] == language]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built here."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Mapping[str, str]:
    """The environment of a program that imports Tidemill from the wheel, unpacked as pip does it."""
    site = wheel.parent / "site"
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    return kept | {"PYTHONPATH": str(site), "COLUMNS": "120", "NO_COLOR": "1"}


@pytest.fixture
def program(wheel: Path, tmp_path: Path) -> Path:
    """The command `tidemill`, installed from the wheel into an environment of its own; its requirements are ours."""
    folder = tmp_path / "venv"
    venv.create(folder)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib"))
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--no-index", "--python", str(folder), str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True)
    return folder / "bin" / "tidemill"


def run(environment: Mapping[str, str], folder: Path, *words: str, given: str = "") -> str:
    """Run Python in a folder; return what it printed."""
    program = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert program.returncode == 0, program.stdout
    return program.stdout


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(TUTORIALS.glob("*.md"))], ids=lambda page: page.stem)
def test_installing_comes_first(page: Path) -> None:
    """With one command, before any other block."""
    first = next(BLOCK.finditer(page.read_text(encoding="utf-8")))
    assert first["text"].startswith("pip install tidemill")


def test_the_wheel_is_what_runs(environment: Mapping[str, str], tmp_path: Path) -> None:
    """Not the clone, which these tests are part of."""
    printed = run(environment, tmp_path, "-c", "import tidemill; print(tidemill.__file__)")
    assert printed.startswith(environment["PYTHONPATH"])


def test_the_commands_of_the_readme_work(environment: Mapping[str, str], tmp_path: Path) -> None:
    """From the new package to its first run."""
    try_it, own_package, *_ = blocks(ROOT / "README.md", "shell")
    assert "tidemill demo " in try_it
    commands = [line.partition("#")[0].split() for line in own_package.splitlines()]
    assert [words[1] for words in commands] == ["package", "run", "dev", "package"]
    printed = "".join(run(environment, tmp_path, "-m", *words) for words in commands if words[1] != "dev")
    assert "hello_report succeeded" in printed
    assert list(tmp_path.glob("hello-*.tidemill"))


def test_the_wheel_has_every_file_of_an_export(environment: Mapping[str, str], tmp_path: Path) -> None:
    """S-CLI: the chart has files of each kind, also those whose names begin with an underscore."""
    run(environment, tmp_path, "-m", "tidemill", "export", "helm")
    run(environment, tmp_path, "-m", "tidemill", "export", "systemd")
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    files = [FILES / "helm", FILES / "systemd"]
    assert written == {path.relative_to(root) for root in files for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["first-graph", "first-workflow"])
def test_a_tutorial_can_be_pasted_at_the_prompt(environment: Mapping[str, str], name: str, tmp_path: Path) -> None:
    """Block by block into `python -m asyncio`, with the blank lines that a prompt takes for the end of a function."""
    page = TUTORIALS / f"{name}.md"
    assert "`python -m asyncio`" in page.read_text(encoding="utf-8")
    given = "\n\n".join([*blocks(page, "python"), "print('the', 'end')\n"])
    printed = run(environment, tmp_path, "-m", "asyncio", given=given)
    assert "the end" in printed
    assert "Traceback" not in printed, printed


def test_the_first_steps_can_be_taken(environment: Mapping[str, str], tmp_path: Path) -> None:
    """A folder, an editor and `tidemill dev`."""
    graph, *more = blocks(TUTORIALS / "first-steps.md", "python")
    whole = "\n\n".join([graph, *more])
    file = tmp_path / "desk" / "prices.py"
    file.parent.mkdir()
    arguments = [sys.executable, "-u", "-m", "tidemill", "dev", "desk"]
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as dev:
        try:
            wait_for_line(dev, "there is no package yet")
            file.write_text(graph)
            wait_for_line(dev, "loaded in")
            file.write_text(whole)
            assert "workflow" in wait_for_line(dev, "reloaded in")
            file.write_text(whole.replace("(price: Price)", "(price: Price"))
            wait_for_line(dev, "the last good version is still running")
            assert "desk/prices.py:" in wait_for_line(dev, "SyntaxError")
            dev.send_signal(signal.SIGINT)
            wait_for_line(dev, "stopping")
        finally:
            dev.kill()
    printed = run(
        environment, tmp_path, "-m", "tidemill", "workflow", "list", "--store", "sqlite:///desk/.tidemill/dev.db"
    )
    assert "no workflows" not in printed


def test_the_demo_needs_nothing_but_the_wheel(program: Path, tmp_path: Path) -> None:
    """`pip install tidemill && tidemill demo`: a link, examples that fire and run, and an orderly end at SIGTERM."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "PYTHON"))}
    with subprocess.Popen(
        [program, "demo", "--port", "0"],
        cwd=tmp_path,
        env=kept | {"HOME": str(tmp_path), "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        try:
            assert demo.stdout is not None
            first = demo.stdout.readline()
            assert first.startswith("Tidemill is ready at "), first
            url = first.split()[-1]
            assert "market_maker.py" in wait_for_line(demo, "to tidemill-demo: change one and save")
            with httpx.Client(base_url=url, trust_env=False) as client:
                until(lambda: client.get("/api/v1/reactors/market").json().get("fires", 0) > 50)
                until(lambda: bool(client.get("/api/v1/runs", params={"state": "success"}).json()["items"]))
                assert "<title>" in client.get("/", headers={"accept": "text/html"}).text
            demo.send_signal(signal.SIGTERM)
            wait_for_line(demo, "stopping")
            assert demo.wait(20) == 0
        finally:
            demo.kill()
    assert (tmp_path / "tidemill-demo" / ".tidemill" / "dev.db").exists()


def wait_for_line(program: subprocess.Popen[str], words: str) -> str:
    """Read what a program prints until a line has some words; return that line."""
    assert program.stdout is not None
    seen = []
    for line in program.stdout:
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"it ended, and never said {words!r}: {''.join(seen)}")
