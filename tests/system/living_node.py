"""A program with an executor and running children: it prints their process ids, and waits to be killed."""

import asyncio
import sys
from pathlib import Path

from tests.contract.executor_bench import Bench


async def main(folder: Path) -> None:
    """Start two attempts, and never end."""
    bench = Bench("subprocess", folder)
    await bench.executor.open()
    await bench.start("has_a_child")
    await bench.start("ignores_signals", "other")
    print(Path(bench.files()["pids"]).read_text(encoding="utf-8"), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
