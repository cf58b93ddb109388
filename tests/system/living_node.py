"""A program with an executor and running children: it prints their process ids, and waits to be killed."""

import asyncio
import sys
from pathlib import Path

from tests.contract.executor_harness import ExecutorHarness


async def main(folder: Path) -> None:
    """Start two attempts, and never end."""
    harness = ExecutorHarness("subprocess", folder)
    await harness.executor.open()
    await harness.start("has_a_child")
    await harness.start("ignores_signals", "other")
    print(Path(harness.files()["pids"]).read_text(encoding="utf-8"), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
