"""Triggers: what starts workflows besides the clock."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidemill.access.principal import Caller, Permission
from tidemill.api.operation import GET, PATCH, CommandForm, Message, Verb, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services

if TYPE_CHECKING:
    from tidemill.engine.workflows.client.catalog import TriggerEntry


class TriggerInfo(Message, frozen=True, kw_only=True):
    """A trigger: polled, or a subscription of a workflow to a reactor or to a node of a graph."""

    name: str
    kind: str
    """poll, on_firing or on_output; unknown if no trigger of that name is loaded."""
    workflows: list[str]
    """The workflows that it starts."""
    paused: bool
    every: float | None = None
    timeout: float | None = None
    allow_concurrent: bool | None = None
    reactor: str | None = None
    graph: str | None = None
    node: str | None = None
    when: str | None = None
    cooldown: float | None = None
    dedup: str | None = None

    @classmethod
    def of_entry(cls, entry: "TriggerEntry") -> "TriggerInfo":
        """Return the message about a trigger, with the fields of its kind."""
        from tidemill.workflows.definition import (  # on use: commands that show help need no definitions
            OnFiring,
            OnOutput,
            Trigger,
            describe_expression,
        )

        info = cls(name=entry.name, kind="unknown", workflows=entry.workflows, paused=entry.is_paused)
        match entry.trigger:
            case Trigger() as one:
                return replace(
                    info, kind="poll", every=one.every, timeout=one.timeout, allow_concurrent=one.allow_concurrent
                )
            case OnFiring() as one:
                return replace(info, kind="on_firing", reactor=one.reactor, when=describe_expression(one.when))
            case OnOutput() as one:
                return replace(
                    info,
                    kind="on_output",
                    graph=one.graph,
                    node=one.node,
                    when=describe_expression(one.when),
                    cooldown=one.cooldown,
                    dedup=describe_expression(one.dedup),
                )
        return info


@operation(
    GET("/triggers"),
    Permission.READ,
    command="trigger list",
    columns=("name", "kind", "workflows", "paused", "when"),
    empty="no triggers",
)
async def list_triggers(services: Services, caller: Caller, page: PageRequest) -> Page[TriggerInfo]:
    """List the triggers of the loaded workflows by name."""
    triggers = await services.catalog.triggers(caller)
    return page_of(triggers, page, key=lambda one: one.name, view=TriggerInfo.of_entry)


@operation(
    PATCH("/triggers/{name}"),
    Permission.WRITE,
    audit="trigger.pause",
    verbs=(
        Verb(
            "pause_trigger",
            "Pause a trigger: it starts nothing until it is resumed.",
            {"paused": True},
            CommandForm("trigger pause", done="trigger '{name}' is paused"),
        ),
        Verb(
            "resume_trigger",
            "Resume a trigger.",
            {"paused": False},
            CommandForm("trigger resume", done="trigger '{name}' is resumed"),
        ),
    ),
)
async def set_trigger_paused(services: Services, caller: Caller, name: str, paused: bool) -> TriggerInfo:
    """Pause or resume a trigger: while it is paused, it is not polled."""
    return TriggerInfo.of_entry(await services.catalog.set_trigger_paused(caller, name, paused=paused))
