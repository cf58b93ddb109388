"""`tidemill dead-letter`: replay and drop what failed for good; operations list and show it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_FAILED, exit_on_error
from tidemill.cli.opening import open_api
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import StoreOption, TenantOption

if TYPE_CHECKING:
    from tidemill.api.port import AsyncApi
    from tidemill.graphs.views import ReplayResult

app = typer.Typer(help="List, show, replay and drop what failed for good.", no_args_is_help=True)

IdArgument = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="The id of a dead letter, or its end.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All dead letters, oldest first.")]
SourceOption = Annotated[
    str | None, typer.Option(help="With --all: only those of this reactor or accumulator.", show_default=False)
]


@app.command()
def replay(
    id: IdArgument = None,
    everything: AllOption = False,
    source: SourceOption = None,
    event: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Another event, which is processed instead; - reads it.", show_default=False),
    ] = None,
    store: StoreOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Process dead letters again. Exit code 1 if one fails again: then it stays a dead letter."""
    from msgspec import to_builtins

    from tidemill.api.dead_letters import replay_dead_letter
    from tidemill.cli.value_input import read_json

    if event is not None and everything:
        raise typer.BadParameter("--event is for one dead letter: name its ID")
    fields = {} if event is None else {"event": read_json(event)}

    async def work(api: "AsyncApi", one: str) -> dict[str, Any]:
        result = await api.call(replay_dead_letter, {"id": one, **fields})
        return {"id": one, "ok": _succeeded(result), **to_builtins(result)}

    answers = _for_each(id, everything, source, store, tenant, work)
    _show(answers, everything, output, lambda one: f"{one['id']}: {_sentence(one)}" if everything else _sentence(one))
    if not all(one["ok"] for one in answers):
        raise typer.Exit(EXIT_FAILED)


@app.command()
def drop(
    id: IdArgument = None,
    everything: AllOption = False,
    source: SourceOption = None,
    store: StoreOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Delete dead letters."""
    from tidemill.api.dead_letters import drop_dead_letter

    async def work(api: "AsyncApi", one: str) -> dict[str, Any]:
        await api.call(drop_dead_letter, {"id": one})
        return {"id": one, "dropped": True}

    answers = _for_each(id, everything, source, store, tenant, work)
    _show(answers, everything, output, lambda one: f"dead letter {one['id']} is dropped")


def _for_each(
    id: str | None,
    everything: bool,
    source: str | None,
    store: str | None,
    tenant: str | None,
    work: "Callable[[AsyncApi, str], Awaitable[dict[str, Any]]]",
) -> list[dict[str, Any]]:
    """Return the answers for a dead letter, or for all of them in the order in which they failed."""
    if (id is None) == (not everything):
        raise typer.BadParameter("name the ID of a dead letter, or give --all")

    async def do() -> list[dict[str, Any]]:
        from tidemill.api.dead_letters import list_dead_letters

        async with open_api(store, tenant) as api:
            if id is not None:
                return [await work(api, id)]
            found = await api.collect(list_dead_letters, {"source": source}, None)
            return [await work(api, one.id) for one in reversed(found)]

    with exit_on_error():
        return run_async(do())


def _succeeded(result: "ReplayResult") -> bool:
    receipt, firing = result.receipt, result.firing
    return (receipt is None or receipt.accepted) and (firing is None or firing.ok)


def _sentence(answer: dict[str, Any]) -> str:
    receipt, firing, run = answer["receipt"], answer["firing"], answer["run"]
    if receipt is not None:
        return f"{receipt['outcome']}: {receipt['reason']}" if receipt["reason"] else str(receipt["outcome"])
    if firing is not None:
        failures = "; ".join(one["error"]["message"] for one in firing["results"].values() if one["error"])
        return f"firing {firing['id']} failed: {failures}" if failures else f"firing {firing['id']} succeeded"
    return "the firing starts no run now" if run is None else f"run {run} has started"


def _show(
    answers: list[dict[str, Any]], everything: bool, output: Format, say: "Callable[[dict[str, Any]], str]"
) -> None:
    if output is Format.JSON:
        show_json(answers if everything else answers[0])
        return
    for sentence in [say(one) for one in answers] or ["no dead letters"]:
        print_text(sentence)
