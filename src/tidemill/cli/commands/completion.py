"""`tidemill completion`: print a shell's completion script."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # imported there, not exported

from tidemill.cli.output import print_text

COMPLETE_VARIABLE = "_TIDEMILL_COMPLETE"
"""The environment variable by which a script asks this program for completions."""


class Shell(StrEnum):
    """The shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]) -> None:
    """Print the completion script of a shell, to be evaluated when the shell starts.

    bash, in ~/.bashrc: eval "$(tidemill completion bash)"

    zsh, in ~/.zshrc after compinit: eval "$(tidemill completion zsh)"

    fish: tidemill completion fish > ~/.config/fish/completions/tidemill.fish
    """
    print_text(get_completion_script(prog_name="tidemill", complete_var=COMPLETE_VARIABLE, shell=shell.value))
