"""Runs the code of the attempt in a child process, so that code that blocks does not silence the heartbeats."""

from tidemill.engine.workflows.executors.code import CodeLocation, CodeLocations
from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, HandleCall
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.kernel.clock import Clock
from tidemill.kernel.masking import SecretMask


class _OneLocation(CodeLocations):
    """The location of the only version that the attempt needs."""

    def __init__(self, location: CodeLocation) -> None:
        self._location = location

    def get(self, tenant: str, workflow: str, version: str) -> CodeLocation:  # noqa: ARG002
        return self._location

    def values(self) -> list[CodeLocation]:
        return [self._location]


class AttemptProcess(Subprocess):
    """Runs one attempt, whose code no other process here has loaded."""

    name = "attempt"

    def __init__(
        self,
        location: CodeLocation,
        listener: AttemptListener,
        clock: Clock,
        *,
        handle_call: HandleCall,
        mask: SecretMask,
        lease: float,
    ) -> None:
        super().__init__(
            {},
            listener,
            clock,
            concurrency=1,
            handle_call=handle_call,
            mask=mask,
            lease=lease,
            locations=_OneLocation(location),
        )

    def _trim_inputs(self, request: AttemptRequest) -> AttemptRequest:
        """Return the request as it is: the node has trimmed it."""
        return request
