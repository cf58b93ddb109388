"""The arguments and options of commands that import definitions from files."""

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
    typer.Argument(metavar="FILE[:NAME]", help="A Python file or a module; with NAME if it has several workflows."),
]
LoadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--load",
        metavar="PATH",
        help="A file or package folder with graphs that the workflow calls by name. May be repeated.",
    ),
]
