"""Who is told of firings: workflows that firings start, known only by a port."""

from collections.abc import Callable
from typing import Protocol

from tidemill.graphs.result import Firing

Done = Callable[[str | None], None]
"""Called when a follower has had a firing, with None, or will never have it, with the reason."""


class Followers(Protocol):
    """The workflows that reactors' firings start."""

    def names(self, tenant: str, reactor: str) -> frozenset[str]:
        """Return which workflows a reactor's firings start."""

    def deliver(self, tenant: str, workflow: str, firing: Firing, done: Done) -> None:
        """Tell a workflow of a firing; what it was told before comes before this."""


class NoFollowers(Followers):
    """Firings start nothing."""

    def names(self, tenant: str, reactor: str) -> frozenset[str]:  # noqa: ARG002
        return frozenset()

    def deliver(self, tenant: str, workflow: str, firing: Firing, done: Done) -> None:  # noqa: ARG002
        raise AssertionError("nobody follows, so nobody is told")
