"""A package whose runs are large: one with 10,000 elements, one with 1,000 tasks."""

from pathlib import Path

HEAD = """\
import tidemill as tm

wide = tm.Workflow("wide")


@wide.task
def numbers() -> list[int]:
    return list(range(10_000))


@wide.task(each="numbers")
def square(numbers: int) -> int:
    return numbers * numbers


large = tm.Workflow("large")
"""
TASK = """

@large.task
def step_{number}({parameter}) -> int:
    return {number}
"""
CHAINS = 10
TASKS = 1000


def write_large_package(folder: Path) -> Path:
    """Write the package into a folder; return the folder."""
    folder.mkdir()
    tasks = (
        TASK.format(number=number, parameter=f"step_{number - CHAINS}: int" if number >= CHAINS else "")
        for number in range(TASKS)
    )
    (folder / "large.py").write_text(HEAD + "".join(tasks), encoding="utf-8")
    return folder
