"""The examples and benchmarks run as a newcomer would run them: as programs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    """Run Python in the project's folder and return what it printed."""
    return end(start(*arguments))


def start(*arguments: str) -> "subprocess.Popen[str]":
    """Start Python in the project's folder."""
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(program: "subprocess.Popen[str]") -> str:
    """Wait until a program has ended well, and return what it printed."""
    with program:
        try:
            printed, errors = program.communicate(timeout=110)
        finally:
            program.kill()
    assert program.returncode == 0, errors
    return printed


def test_the_market_maker_shows_its_compiled_graph() -> None:
    """G-17: one readable function, routes as ifs."""
    code = run("-m", "tidemill", "graph", "code", "examples/market_maker.py")
    assert "def market_maker(inputs):" in code
    assert "if decide_is is Trade:" in code


def test_the_nightly_report_runs_as_a_script_and_from_the_shell(tmp_path: Path) -> None:
    """Both tell the same; from the shell with its own params, and kept. They run side by side: both mostly wait."""
    script = start("examples/nightly_report.py")
    store = f"sqlite:///{tmp_path / 'reports.db'}"
    shell = ["-m", "tidemill", "run", "examples/nightly_report.py", "--day", "2026-01-06", "--rows", "3"]
    printed = run(*shell, "--currency", "USD", "--store", store)
    assert "Tuesday, 06 January: a quiet day" in printed
    assert "nightly_report succeeded" in printed
    assert end(script).startswith("Monday, 05 January: a ")


@pytest.mark.parametrize(
    "name",
    [
        "bench_durability",
        "bench_event_path",
        "bench_scaling",
        "bench_limits",
        "bench_nodes",
        "bench_reload",
        "bench_workflows",
    ],
)
def test_a_benchmark_runs_and_gives_verdicts(name: str) -> None:
    """Each benchmark prints its bounds and whether they were reached; how fast is not this test's business."""
    printed = run("-m", f"benchmarks.{name}", "--quick")
    assert "required" in printed
