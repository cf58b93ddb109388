"""Handlers: what was called after a run has failed or succeeded, and how that went."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import GET, Message, operation
from tidemill.api.paging import Page, PageRequest, page_in_order
from tidemill.api.services import Services
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.states import RunState, TaskState

if TYPE_CHECKING:
    from tidemill.workflows.records import RunRecord


class HandlerRun(Message, frozen=True, kw_only=True):
    """The run of the handlers that one end of a run has called."""

    run: Annotated[str, Meta(examples=["06fh2k8t3v9q"])]
    workflow: Annotated[str, Meta(examples=["report.on_failure"])]
    handles: Annotated[str, Meta(examples=["on_failure"])]
    """The kind of the handlers: on_failure or on_success."""
    state: RunState
    created_at: datetime
    """When the run ended that they handle."""
    ended_at: datetime | None
    tasks: dict[str, TaskState]
    """The handlers, each with its state."""

    @classmethod
    def of_record(cls, record: "RunRecord") -> "HandlerRun":
        """Return the message about a run of handlers."""
        row = record.run
        return cls(
            run=row.id,
            workflow=row.workflow,
            handles=row.workflow.rpartition(".")[2],
            state=row.state,
            created_at=row.created_at,
            ended_at=row.ended_at,
            tasks={task.task: task.state for task in record.tasks if task.index == UNMAPPED},
        )


@operation(GET("/runs/{run}/handlers"), Permission.READ)
async def list_handlers(services: Services, caller: Principal, page: PageRequest, run: str) -> Page[HandlerRun]:
    """List the runs of handlers that the ends of a run have called, oldest first."""
    called = await services.workflows.runs.handler_runs(caller, run)
    return page_in_order([HandlerRun.of_record(one) for one in called], page)
