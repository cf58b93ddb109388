"""An attempt of a remote executor, as its node knows it."""

import asyncio

from tidemill.engine.workflows.executors.attempt_table import RunningAttempt
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.executors.remote.start_deadlines import StartDeadline


class RemoteAttempt(RunningAttempt):
    """An attempt whose unit was launched or adopted."""

    def __init__(self, request: AttemptRequest, *, adopted_at: float | None = None, has_begun: bool = False) -> None:
        super().__init__(request)
        self.adopted_at = adopted_at
        """When this node took it over, on the monotonic clock; None if this node launches it."""
        self.has_begun = has_begun
        """Whether its code is known to run, whatever the cluster says about its unit."""
        self.launched = asyncio.Event()
        """Set once the launcher has answered."""
        if adopted_at is not None:
            self.launched.set()
        self.deadline = StartDeadline()
        self.is_judged = False
