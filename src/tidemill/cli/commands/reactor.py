"""`tidemill reactor`: the reactors of a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.completions import complete_reactor
from tidemill.cli.opening import with_client
from tidemill.cli.output import Format, Output, StreamFormat, StreamOutput, print_text, show_json
from tidemill.cli.stores import TenantOption

if TYPE_CHECKING:
    from tidemill.client import AsyncClient
    from tidemill.graphs.state import ReactorState
    from tidemill.graphs.views import FiringView

app = typer.Typer(help="Inspect and command the reactors of a server.", no_args_is_help=True)

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of a reactor.", show_default=False, autocompletion=complete_reactor),
]

KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help='One key of a keyed reactor, such as BTC, 42, \'["XETRA", "SAP"]\', or \'"42"\' for text.',
        show_default=False,
    ),
]


def _parse(key: str | None) -> Any:
    from tidemill.graphs.key_forms import parse_key

    return None if key is None else parse_key(key)


@app.command("show")
def show_reactor(
    name: NameArgument, key: KeyOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Show a reactor, or one key: its health, its accumulators, its partitions, and its last firings."""
    from msgspec import to_builtins

    from tidemill.cli.reactor_view import show_reactor_details

    async def read(client: "AsyncClient") -> "tuple[ReactorState, list[FiringView]]":
        reactor, parsed = client.reactor(name), _parse(key)
        return await reactor.state(parsed), await reactor.firings(limit=10, key=parsed)

    state, firings = with_client(tenant, read)
    if output is Format.JSON:
        show_json({**to_builtins(state), "firings": to_builtins(firings)})
    else:
        show_reactor_details(state, firings)


@app.command()
def fire(name: NameArgument, key: KeyOption = None, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Fire a reactor now if an input has changed since its last firing; `force-fire` fires in any case."""

    async def work(client: "AsyncClient") -> "FiringView | None":
        reactor, parsed = client.reactor(name), _parse(key)
        is_due = any((await reactor.state(parsed)).dirty.values())
        return await reactor.force_fire(parsed) if is_due else None

    firing = with_client(tenant, work)
    if firing is not None:
        _show_firing(firing, output)
    elif output is Format.JSON:
        show_json(None)
    else:
        which = "" if key is None else f" for key {key}"
        print_text(f"no input of reactor '{name}' has changed since its last firing{which}")


@app.command("force-fire")
def force_fire(
    name: NameArgument, key: KeyOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Fire a reactor now, with its inputs as they are. Exit code 1 if the firing fails."""
    _show_firing(with_client(tenant, lambda client: client.reactor(name).force_fire(_parse(key))), output)


@app.command("fire-with")
def fire_with(
    name: NameArgument,
    inputs: Annotated[
        str,
        typer.Argument(
            metavar="INPUTS", help='The inputs as JSON, by accumulator; "-" reads them.', show_default=False
        ),
    ],
    key: KeyOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Fire a reactor now with other inputs. Exit code 1 if the firing fails.

    Example: tidemill reactor fire-with market '{"orderbook": {"bid": 1.0, "ask": 1.1}}'
    """
    from tidemill.cli.value_input import read_json_object

    values = read_json_object(inputs)
    _show_firing(with_client(tenant, lambda client: client.reactor(name).fire_with(values, _parse(key))), output)


def _show_firing(firing: "FiringView", output: Format) -> None:
    from msgspec import to_builtins

    from tidemill.cli.exit_codes import EXIT_FAILED
    from tidemill.cli.reactor_view import firing_sentences

    if output is Format.JSON:
        show_json(to_builtins(firing))
    else:
        for sentence in firing_sentences(firing):
            print_text(sentence)
    if not firing.ok:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def pause(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Pause a reactor: it takes events, and does not fire. It stays paused when the server restarts."""
    _show_state(with_client(tenant, lambda client: client.reactor(name).pause()), "is paused; events are kept", output)


@app.command()
def resume(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Resume a reactor."""
    _show_state(with_client(tenant, lambda client: client.reactor(name).resume()), "is resumed: {health}", output)


@app.command()
def restart(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Restart a reactor, even one that the supervisor gave up on."""
    _show_state(with_client(tenant, lambda client: client.reactor(name).restart()), "is restarted: {health}", output)


def _show_state(state: "ReactorState", what: str, output: Format) -> None:
    from msgspec import to_builtins

    if output is Format.JSON:
        show_json(to_builtins(state))
    else:
        print_text(f"reactor '{state.name}' {what.format(health=state.health)}")


@app.command()
def watch(
    name: NameArgument,
    every: Annotated[str, typer.Option(metavar="DURATION", help="The least time between two states.")] = "250ms",
    output: StreamOutput = StreamFormat.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Show a reactor live until Ctrl-C: health, rates, queue, accumulators. In a pipe, a line whenever it changes."""
    from tidemill.cli.exit_codes import EXIT_INTERRUPTED
    from tidemill.cli.reactor_view import make_reactor_display

    async def work(client: "AsyncClient") -> None:
        with make_reactor_display(output) as display:
            async for state in client.reactor(name).watch(every):
                display.show(state)

    try:
        with_client(tenant, work)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
