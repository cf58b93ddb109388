"""The context of a firing, as nodes see it."""

import logging
from collections.abc import Callable
from typing import Any

from tidemill.annotations.context import Context


class FiringContext(Context):
    """The firing that a node runs in."""

    __slots__ = ("_consumed", "_get_firing_id", "graph", "key", "log")

    def __init__(
        self,
        graph: str,
        get_firing_id: Callable[[], str],
        consumed: list[tuple[str, Any]],
        log: "logging.LoggerAdapter[logging.Logger]",
        key: Any = None,
    ) -> None:
        self.graph = graph  # type: ignore[misc]  # a slot of our own hides the property
        self.key = key  # type: ignore[misc]
        self._get_firing_id = get_firing_id
        self._consumed = consumed
        self.log = log

    @property
    def consumed(self) -> list[tuple[str, Any]]:
        """The boundaries that led to this firing, as (source, boundary) in the order of arrival; a new list."""
        return self._consumed.copy()

    @property
    def firing_id(self) -> str:
        """The firing's id; it stays the same when the firing is retried."""
        return self._get_firing_id()
