"""What tests may look at inside the workflow engine."""

from tidemill.engine.workflows.engine import WorkflowEngine


class WorkflowProbe:
    """Shows parts of the workflow engine that the public API does not."""

    def __init__(self, engine: WorkflowEngine) -> None:
        self._engine = engine
