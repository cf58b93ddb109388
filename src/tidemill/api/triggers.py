"""Triggers: what starts workflows besides the clock."""

from typing import TYPE_CHECKING

from tidemill.access.principal import Permission, Principal
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
        trigger = entry.trigger
        return cls(
            name=entry.name,
            kind="unknown" if trigger is None else trigger.kind,
            workflows=entry.workflows,
            paused=entry.is_paused,
            **({} if trigger is None else trigger.facts()),
        )


@operation(
    GET("/triggers"),
    Permission.READ,
    command=CommandForm("trigger list", columns=("name", "kind", "workflows", "paused", "when"), empty="no triggers"),
)
async def list_triggers(services: Services, caller: Principal, page: PageRequest) -> Page[TriggerInfo]:
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
async def set_trigger_paused(services: Services, caller: Principal, name: str, paused: bool) -> TriggerInfo:
    """Pause or resume a trigger: while it is paused, it is not polled."""
    return TriggerInfo.of_entry(await services.catalog.set_trigger_paused(caller, name, paused=paused))
