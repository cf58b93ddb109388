"""What a node may know of the firing it runs in."""

import logging
from collections.abc import Callable
from typing import Any

from tidemill.annotations.context import Context


class FiringContext(Context):
    """The firing around a node."""

    __slots__ = ("_consumed", "_get_firing_id", "graph", "log")

    def __init__(
        self,
        graph: str,
        get_firing_id: Callable[[], str],
        consumed: list[tuple[str, Any]],
        log: "logging.LoggerAdapter[logging.Logger]",
    ) -> None:
        self.graph = graph  # type: ignore[misc]  # a slot of our own hides the property
        self._get_firing_id = get_firing_id
        self._consumed = consumed
        self.log = log

    @property
    def consumed(self) -> list[tuple[str, Any]]:
        """What led to this firing, as (source, boundary) in the order of arrival; a list of your own."""
        return self._consumed.copy()

    @property
    def firing_id(self) -> str:
        """The firing's id: the same when the firing is tried again."""
        return self._get_firing_id()
