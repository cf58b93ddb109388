"""The side of a contestant: a process that does pieces of work on demand, and answers with figures.

Orders and answers are lines of JSON, so the parent decides whose turn it is. This module and all that a contestant
imports need nothing but the standard library, msgspec and the contestant's own library.
"""

import asyncio
import gc
import inspect
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TextIO

Figures = Mapping[str, float]
Work = Callable[[int], Figures | Awaitable[Figures]]
"""Does so many events, runs or starts, and returns what the parent has asked for."""


async def serve(works: Mapping[str, Work]) -> None:
    """Do the work of each order until the input ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what the library prints goes to the log, not between the answers
        _say(answers, {"works": list(works)})
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            gc.collect()  # so that no round pays for the garbage of an earlier one
            found = works[order["work"]](order["count"])
            _say(answers, await found if inspect.isawaitable(found) else found)


def _say(answers: TextIO, content: object) -> None:
    print(json.dumps(content), file=answers, flush=True)
