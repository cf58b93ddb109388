"""A workflow for workers whose tasks do nothing: a list, and one task run per element."""

import tidemill as tm

WIDTH = 20

crew = tm.Workflow("crew", max_active_runs=100)


@crew.task(executor="worker")
def numbers() -> list[int]:
    """Return the list."""
    return list(range(WIDTH))


@crew.task(each="numbers", executor="worker")
def work(numbers: int) -> int:
    """Take one element."""
    return numbers
