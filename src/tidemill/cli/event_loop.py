"""Runs the asynchronous work of a command."""

from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end."""
    import asyncio  # here: it would take a fifth of the time of `--help`

    return asyncio.run(work)
