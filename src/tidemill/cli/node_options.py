"""The options of commands that run a node."""

from collections.abc import Sequence
from typing import Annotated

import typer

ExecutorOption = Annotated[str, typer.Option(help="The executor of tasks that name none: in_process or subprocess.")]
ConcurrencyOption = Annotated[int, typer.Option(min=1, help="The number of tasks that may run at a time.")]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", metavar="NAME=N", help="The number of slots of a pool. May be repeated."),
]


def parse_pools(pairs: Sequence[str] | None) -> dict[str, int]:
    """Return the slots of pools by name."""
    pools = {}
    for pair in pairs or ():
        name, _, number = pair.partition("=")
        if not name or not number.isdecimal():
            raise typer.BadParameter(f"--pool takes NAME=N, such as warehouse=2, not {pair!r}")
        pools[name] = int(number)
    return pools
