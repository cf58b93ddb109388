"""Arguments and options that several commands declare: files with definitions, and what a node runs with."""

import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A Python file, or the name of a module.")]
OptionalFileArgument = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="A Python file, or the name of a module.", show_default=False),
]
GraphArgument = Annotated[
    str, typer.Argument(metavar="FILE[:NAME]", help="A Python file or a module; with NAME if it has several graphs.")
]
WorkflowArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:NAME]",
        help="A Python file or a module, with NAME if it has several workflows; or a workflow of the server in use.",
    ),
]
LoadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--load",
        metavar="PATH",
        help="A file or package folder with graphs that the workflow calls by name. May be repeated.",
    ),
]
ExecutorOption = Annotated[str, typer.Option(help="The executor of tasks that name none: in_process or subprocess.")]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="The number of tasks that may run at a time. Default: 8, and 16 coroutines.", show_default=False
    ),
]
NodePortOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="The port of the node; 0 takes a free one. Default: 8080, or a free one if 8080 is taken.",
        show_default=False,
    ),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", metavar="NAME=N", help="The number of slots of a pool. May be repeated."),
]


class LogFormatChoice(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe records that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level as the logging module counts it."""
        return int(logging.getLevelName(self.value.upper()))


LogFormatOption = Annotated[LogFormatChoice, typer.Option(help="The format of the log lines on standard error.")]
LogLevelOption = Annotated[LogLevel, typer.Option(help="The least severe records that are logged.")]


def parse_pools(pairs: Sequence[str] | None) -> dict[str, int]:
    """Return the slots of pools by name."""
    pools = {}
    for pair in pairs or ():
        name, _, number = pair.partition("=")
        if not name or not number.isdecimal():
            raise typer.BadParameter(f"--pool takes NAME=N, such as warehouse=2, not {pair!r}")
        pools[name] = int(number)
    return pools
