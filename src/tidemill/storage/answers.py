"""What comes of a unit of work, for those who await it and for those who go on from it at once."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Answer(asyncio.Future[T]):
    """The result of a unit of work, which comes when it is committed.

    Whoever awaits it has it one turn of the loop later. `then` is called in the same turn.
    """

    then: "Callable[[Answer[T]], None] | None" = None

    def tell(self, result: T) -> None:
        """Give the result, unless nobody waits for it any more."""
        if not self.done():
            self.set_result(result)
            self._go_on()

    def refuse(self, error: BaseException) -> None:
        """Say why there is no result, unless nobody waits for it any more."""
        if not self.done():
            self.set_exception(error)
            self._go_on()

    def _go_on(self) -> None:
        if self.then is None:
            return
        try:
            self.then(self)
        except Exception as error:  # whatever one of them does, the others are told too: as asyncio does
            told: dict[str, Any] = {"message": "what follows from an answer failed", "exception": error, "future": self}
            self.get_loop().call_exception_handler(told)
