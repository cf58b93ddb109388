"""A workflow with many tasks that become ready at once, in a module that another process can import."""

from tidemill.workflows.workflow import Workflow

crowd = Workflow("crowd")


@crowd.task
def numbers() -> list[int]:
    """Return as many numbers as tasks."""
    return list(range(50))


@crowd.task(each="numbers", executor="kubernetes")
def one(numbers: int) -> int:
    """Return one number."""
    return numbers
