"""What was made ready for a version of a workflow, until it is no longer needed."""

from collections.abc import Callable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Memory(Generic[Thing]):
    """Things by tenant, workflow and version: made when first asked for, the oldest forgotten when there are many."""

    def __init__(self, make: Callable[[str, str, str], Thing], size: int = 1024) -> None:
        self._make = make
        self._size = size
        self._things: dict[tuple[str, str, str], Thing] = {}

    def get(self, tenant: str, workflow: str, version: str) -> Thing:
        """Return the thing, made if need be."""
        key = tenant, workflow, version
        found = self._things.get(key)
        if found is None:
            if len(self._things) >= self._size:
                del self._things[next(iter(self._things))]
            found = self._things[key] = self._make(*key)
        return found
