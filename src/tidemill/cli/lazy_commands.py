"""Commands that are imported when they are used: `tidemill --help` takes as long with fifty commands as with five."""

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from tidemill.cli.shared_options import SharedOptionsCommand, SharedOptionsGroup, command_words
from tidemill.kernel.suggestions import did_you_mean

SETTINGS_NAME = "COMMAND_SETTINGS"
"""Where a module keeps what its command needs besides its function."""


class LazyCommand(NamedTuple):
    """A command or a group of commands, and where it is declared."""

    help: str
    """Its line in the list of commands; the help of a group is the same."""
    module: str | None = None
    """Below `tidemill.cli.commands`; None if operations declare all of its commands."""
    function: str | None = None
    """The function of the command; None for a group, the `app` of the module."""

    def load(self, name: str) -> Any:
        """Import the command."""
        module = None if self.module is None else import_module(f"tidemill.cli.commands.{self.module}")
        outer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        outer.callback()(_nothing)
        if self.function is not None:
            outer.command(name, **getattr(module, SETTINGS_NAME, {}))(getattr(module, self.function))
        else:
            from tidemill.cli.derive import derive_commands

            group = typer.Typer(help=self.help, no_args_is_help=True) if module is None else module.app
            for verb, command in derive_commands(name).items():
                (group.command(verb) if verb else outer.command(name))(command)
            if group.registered_commands:
                outer.add_typer(group, name=name)
        _prepare_commands(outer)
        return typer.main.get_command(outer).commands[name]  # type: ignore[attr-defined]  # it has a callback: a group


def _nothing() -> None:
    """Make an application a group, even with a single command."""


def _prepare_commands(group: typer.Typer) -> None:
    """Give each command the options of all, and rewrap its help: a paragraph breaks where the terminal does."""
    for command in group.registered_commands:
        if not issubclass(command.cls or TyperCommand, SharedOptionsCommand):
            command.cls = SharedOptionsCommand
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
        command.short_help = command.help.partition("\n\n")[0]  # in full: a list of commands cuts nothing off
    for inner in group.registered_groups:
        inner.cls = CommandGroup
        if inner.typer_instance is not None:
            _prepare_commands(inner.typer_instance)


class _LoadedCommands(dict[str, Any]):
    """Commands by name; a value is imported when it is read."""

    def __init__(self, lazy: dict[str, LazyCommand]) -> None:
        super().__init__(dict.fromkeys(lazy))
        self._lazy = lazy

    def __getitem__(self, name: str) -> Any:
        if (found := super().__getitem__(name)) is None:
            found = self[name] = self._lazy[name].load(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        return self.__getitem__(name) if name in self else default


class CommandGroup(SharedOptionsGroup):
    """A group that answers an old spelling of a command with the new one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; a group that was a command says so where options stand instead of a command."""
        named = {*self.list_commands(ctx), *ctx.help_option_names}
        if args and args[0].startswith("-") and named.isdisjoint(args) and not ctx.resilient_parsing:
            _fail_if_renamed(ctx, command_words(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names; say what a renamed one is called now."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            least = 1 if did_you_mean(args[0], self.commands) else 0
            for number in range(len(args), least - 1, -1):
                _fail_if_renamed(ctx, [*command_words(ctx), *args[:number]], args[number:])
        return super().resolve_command(ctx, args)


def _fail_if_renamed(ctx: Any, words: Sequence[str], rest: Sequence[str] = ()) -> None:
    """End with the new spelling of a command, if these words are an old one; the verb after a group stays."""
    root = ctx.find_root()
    old = " ".join(words)
    if (new := root.command.renamed.get(old)) is not None and find_command(root.command, new) is not None:
        if rest and find_command(root.command, f"{new} {rest[0]}") is not None:
            old, new = f"{old} {rest[0]}", f"{new} {rest[0]}"
        ctx.fail(f"`{root.info_name} {old}` is now `{root.info_name} {new}`")


def find_command(root: Any, name: str) -> Any:
    """Return the command or the group with a name, such as "runs list"; None if there is none."""
    command = root
    for word in name.split():
        command = command.get_command(None, word) if hasattr(command, "get_command") else None
    return command


def lazy_group(sections: Mapping[str, Mapping[str, LazyCommand]], renamed: Mapping[str, str]) -> type[CommandGroup]:
    """Return the class of a group with the commands of some sections, and with old spellings of commands."""

    class LazyGroup(CommandGroup):
        """A group whose list of commands imports none of them."""

        def __init__(self, **options: Any) -> None:
            commands = {name: one for section in sections.values() for name, one in section.items()}
            super().__init__(**{**options, "commands": _LoadedCommands(commands)})
            self.renamed = renamed

        def format_commands(self, _: Any, formatter: Any) -> None:
            """Write the names with their summaries, in sections."""
            width = max(map(len, self.commands))
            for title, section in sections.items():
                with formatter.section(title):
                    formatter.write_dl([(f"{name:{width}}", one.help) for name, one in section.items()])

    return LazyGroup
