"""The options of all commands: what to work on, for whom, and how to print it.

They may stand before the command, after it, or between its words: each group and each command reads those that stand
behind its own name. A command says which of them it takes, and refuses the others wherever they stand.
"""

from functools import cache, partial
from typing import Any, Final, get_args

from typer.core import TyperCommand, TyperGroup, TyperOption

from tidemill.cli.output import Output
from tidemill.cli.stores import StoreOption, TenantOption
from tidemill.cli.targets import GivenOptions, ProfileOption, ServerOption, given_options

_DECLARATIONS: Final = {
    "server": ServerOption,
    "profile": ProfileOption,
    "store": StoreOption,
    "tenant": TenantOption,
    "output": Output,
}

WITHOUT_SERVER = (
    "demo",
    "dev",
    "server",
    "host",
    "worker",
    "attempt",
    "workflow check",
    "graph check",
    "package new",
    "package build",
    "package key",
    "package sign",
    "package verify",
    "package show",
    "profile",
    "export",
    "db",
    "doctor",
    "completion",
)
"""The commands, and the groups of commands, that never work with a server."""


@cache
def _make_option(name: str, *, hidden: bool) -> TyperOption:
    """Return an option whose value the command does not get as an argument: it is in `given_options`."""
    declared = get_args(_DECLARATIONS[name])[1]
    return TyperOption(
        param_decls=[name, declared.default, *declared.param_decls],
        metavar=declared.metavar or "table|json|ndjson",
        help=declared.help,
        expose_value=False,
        hidden=hidden,
    )


class SharedOptionsGroup(TyperGroup):
    """A group that takes the options of all commands; the help of `tidemill` shows them."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the options of all commands."""
        return _with_shared(self, super().get_params(ctx), set(_DECLARATIONS) if ctx.parent is None else set())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the options of all commands that stand here."""
        if ctx.parent is None:
            given_options.set(GivenOptions())
        _read_options(self, ctx, args)
        return super().parse_args(ctx, args)


class SharedOptionsCommand(TyperCommand):
    """A command that takes options of all commands wherever they stand."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for one in self.params:
            one.metavar = one.metavar or _placeholder(one.type)
            if hasattr(one.type, "_describe_range"):
                vars(one.type)["_describe_range"] = partial(_range_in_words, one.type)  # else the help says 1<=x<=9

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the first line of the help: what must be given stands there without braces."""
        return [one[1:-1] if one.startswith("{") else one for one in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the options of all commands."""
        return _with_shared(self, super().get_params(ctx), _taken_by(self, ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of all commands that stand here or before, and refuse those that the command does not take.

        An option that stands before and that the command declares itself is read as if it stood here.
        """
        given, written = _read_options(self, ctx, args)
        taken = _taken_by(self, ctx)
        for name, value in given._asdict().items():
            if value is not None and name not in taken and not ctx.resilient_parsing:
                ctx.fail(_refusal(ctx.command_path, name, taken))
        declared = {one.name for one in self.params}
        before = {name: value for name, value in given._asdict().items() if name in declared - written}
        words = [f"--{name}={value}" for name, value in before.items() if value is not None]
        self.prepare(ctx, args)
        return super().parse_args(ctx, [*words, *args])

    def prepare(self, ctx: Any, args: list[str]) -> None:
        """Do what comes before the arguments are read, when it is known what the command works on."""


def command_words(ctx: Any) -> list[str]:
    """Return the words of a command after `tidemill`."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.info_name)
        ctx = ctx.parent
    return words


def _placeholder(kind: Any) -> str:
    """Return what the help writes for a value."""
    if choices := getattr(kind, "choices", None):
        return "|".join(str(getattr(one, "value", one)) for one in choices)
    return {"text": "TEXT", "str": "TEXT", "path": "PATH"}.get(kind.name, "N")


def _range_in_words(kind: Any) -> str:
    """Return which numbers an option takes."""
    return f"at least {kind.min}" if kind.max is None else f"{kind.min} to {kind.max}"


def _with_shared(command: Any, params: list[Any], shown: set[str]) -> list[Any]:
    """Return parameters with those options of all commands that are not among them, before the option --help."""
    declared = {option for one in command.params for option in one.opts}
    shared = [_make_option(name, hidden=name not in shown) for name in _DECLARATIONS]
    added = [one for one in shared if declared.isdisjoint(one.opts)]
    return [*command.params, *added, *params[len(command.params) :]]


def _taken_by(command: Any, ctx: Any) -> set[str]:
    """Return the options of all commands that a command takes: what it declares, and a server if it works with one."""
    words = command_words(ctx)
    is_local = any(" ".join(words[:number]) in WITHOUT_SERVER for number in (1, 2))
    return {one.name for one in command.params} & set(_DECLARATIONS) | (set() if is_local else {"server", "profile"})


def _read_options(command: Any, ctx: Any, args: list[str]) -> tuple[GivenOptions, set[str]]:
    """Return the options of all commands that are given so far, and the names of those that stand here."""
    values, _, order = command.make_parser(ctx).parse_args(args=list(args))
    names = [one.name for one in order if one.name in _DECLARATIONS]
    given = given_options.get()
    for name in names:
        earlier = getattr(given, name)
        if not ctx.resilient_parsing and (names.count(name) > 1 or earlier not in (None, values[name])):
            also = f"{earlier} and {values[name]}" if earlier is not None else "two things"
            ctx.fail(f"--{name} says {also}: give it once")
    declared = {one.name for one in command.params}
    given_options.set(given._replace(**{name: values[name] for name in names if name not in declared}))
    return given_options.get(), set(names)


def _refusal(command: str, name: str, taken: set[str]) -> str:
    """Say why a command does not take an option."""
    if name in ("server", "profile"):
        advice = "name a store with --store" if "store" in taken else f"leave out --{name}"
        return f"`{command}` does not work with a server: {advice}"
    if name == "store" and "server" in taken:
        return f"`{command}` works with a running server, not on a store: name one with --server or --profile"
    return f"`{command}` takes no --{name}"
