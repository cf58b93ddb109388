"""Reruns: what a retry or a clear of a run does."""

from typing import TYPE_CHECKING

from tidemill.api.operation import Message

if TYPE_CHECKING:
    from tidemill.engine.workflows.client.changes import ClearResult


class RerunCounts(Message, frozen=True, kw_only=True):
    """How many elements of a mapped task rerun."""

    reruns: int
    total: int


class Rerun(Message, frozen=True, kw_only=True):
    """What a retry or clear does, or, for a preview, would do."""

    run: str
    preview: bool
    reruns: list[str]
    """The tasks that rerun, in topological order."""
    reused: list[str]
    """The tasks whose results are kept and used."""
    elements: dict[str, RerunCounts]
    """Of mapped tasks that rerun in part."""
    version: str
    """The workflow version that the run continues with."""
    missing_tasks: list[str]
    """Tasks of the run that this version does not have."""
    note: str | None
    """Advice for a run that stays pinned to a version that is not the newest."""
    live_nodes: int = 1
    """The number of nodes that may be running on the store."""

    @classmethod
    def of_cleared(cls, run: str, cleared: "ClearResult", *, preview: bool) -> "Rerun":
        """Return the message about cleared tasks."""
        return cls(
            run=run,
            preview=preview,
            reruns=cleared.names,
            reused=cleared.reused,
            elements={name: RerunCounts(reruns=some, total=all_) for name, (some, all_) in cleared.elements.items()},
            version=cleared.version,
            missing_tasks=cleared.missing_tasks,
            note=cleared.note,
            live_nodes=cleared.live_nodes,
        )
