"""A workflow with a mapped task, in a module that another process can import."""

import tidemill as tm

SIZE = 20

fan = tm.Workflow("fan")


@fan.task
def numbers() -> list[int]:
    return list(range(SIZE))


@fan.task(each="numbers")
def double(numbers: int) -> int:
    return 2 * numbers


@fan.task
def total(double: list[int]) -> int:
    return sum(double)
