"""Plain values: what is left of typed values when the code that declares their classes goes."""

from typing import Any

from tidemill.graphs.outcomes import to_jsonable
from tidemill.graphs.result import GraphResult, PlainNodeError, plain_result

_ATOMS = frozenset({bool, float, int, str, type(None)})


class PlainValues:
    """Converts values and results to plain ones, each value once: what firings share stays shared."""

    def __init__(self) -> None:
        self._plain: dict[int, Any] = {}  # by the id of the value
        self._originals: list[Any] = []  # they keep their ids as long as they are here

    def convert(self, value: Any) -> Any:
        """Return a value as JSON-able builtins; lists, such as the contents of windows, share their elements."""
        if type(value) in _ATOMS:
            return value
        if id(value) not in self._plain:
            self._add(value, self._convert_elements(value) if type(value) is list else to_jsonable(value))
        return self._plain[id(value)]

    def _convert_elements(self, elements: list[Any]) -> list[Any]:
        for one in [one for one in elements if id(one) not in self._plain]:
            self._add(one, to_jsonable(one))
        return [*map(self._plain.__getitem__, map(id, elements))]

    def _add(self, value: Any, plain: Any) -> None:
        self._plain[id(value)] = plain
        self._originals.append(value)

    def convert_result(self, result: GraphResult) -> GraphResult:
        """Return a result that holds nothing of its graph's code."""
        outputs = {name: self.convert(value) for name, value in result.outputs.items()}
        error = None if result.error is None else PlainNodeError.of(result.error)
        return plain_result(outputs, result.ran, result.skipped, error)
