"""What was made ready for a version of a workflow, until it is no longer needed."""

from collections.abc import Callable
from typing import Generic, TypeVar

from tidemill.engine.workflows.executors.source import Lookup
from tidemill.kernel.errors import OperationError
from tidemill.workflows.workflow import Workflow

Made = TypeVar("Made")

Key = tuple[str, str, str]


class MadeReady(Generic[Made]):
    """By tenant, workflow and version: made when first asked for, and kept while that very code is loaded.

    The same version may be loaded again, from another place: then what was made of the code before is of no use.
    """

    def __init__(self, lookup: Lookup, make: Callable[[Workflow], Made]) -> None:
        self._lookup = lookup
        self._make = make
        self._made: dict[Key, tuple[Workflow, Made]] = {}

    def get(self, tenant: str, workflow: str, version: str) -> Made:
        """Return what was made for a version, made now if need be; OperationError for what is not loaded here."""
        key = tenant, workflow, version
        code = self._lookup(*key)
        found = self._made.get(key)
        if found is None or found[0] is not code:
            self._forget_unloaded()  # here, as this does not happen often
            found = self._made[key] = code, self._make(code)
        return found[1]

    def made(self) -> list[Made]:
        """Return what is kept for code that is still loaded."""
        self._forget_unloaded()
        return [made for _, made in self._made.values()]

    def _forget_unloaded(self) -> None:
        for key, (code, _) in tuple(self._made.items()):
            if not self._is_loaded(key, code):
                del self._made[key]

    def _is_loaded(self, key: Key, code: Workflow) -> bool:
        try:
            return self._lookup(*key) is code
        except OperationError:
            return False
