"""The types of events in the event feed, and the patterns that select some of them."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import close_names, did_you_mean
from tidemill.telemetry import events

STORED_EVENT_TYPES = {
    events.RUN_STARTED: "a run has started: run, workflow, state, actor",
    events.RUN_ENDED: "a run has ended: run, workflow, state, reason, actor",
    events.RUN_CLEARED: "a run that had ended runs again: run, workflow, state, reason, actor",
    events.TASK_STATE: "a task run has changed: run, workflow, task, index, attempt, before, state, reason, actor",
}
"""Events of runs. Every server on a store has all of them, and repeats them to a reader that comes back."""

NODE_EVENT_TYPES = {
    events.REACTOR_LOADED: "a reactor was loaded: reactor",
    events.REACTOR_UNLOADED: "a reactor was unloaded: reactor",
    events.REACTOR_HEALTH: "the health of a reactor has changed: reactor, health, disconnected",
    events.REACTOR_FIRED: "a reactor has fired, one event for all firings of 250 ms: reactor, firings, failures, total",
    events.ACCUMULATOR_HEALTH: "the health of an accumulator has changed: accumulator, health, reason",
    events.DEAD_LETTER_ADDED: "an event, a firing or the start of a run has failed: kind, source, dead_letter, error",
    events.COMPONENT_RECOVERY: "the supervisor has acted: component, name, action, reason, failures",
    events.PACKAGE_LOADED: "a package was loaded or reloaded: package, version",
    events.PACKAGE_REMOVED: "a package was unloaded: package",
    events.PACKAGE_FAILED: "a package could not be loaded or removed: package, version, reason",
    events.LEADERSHIP_WON: "this node leads from now on: node, epoch",
    events.LEADERSHIP_LOST: "this node no longer leads: node, epoch",
    events.NODE_JOINED: "a server, a worker or another node appeared in the store: node, name, kind",
    events.NODE_LEFT: "a node has left the store, or was removed because it is gone: node, name, kind",
    events.CHANGE_MADE: "a person or a program has changed something, as the audit log says: action, target",
    events.EVENTS_GAP: "events were missed, which are no longer known here: reason",
}
"""Events of the node that a reader is connected to."""

FEED_EVENT_TYPES = STORED_EVENT_TYPES | NODE_EVENT_TYPES

ALL_TYPES = frozenset(FEED_EVENT_TYPES)


def select_types(patterns: str | Iterable[str] | None) -> frozenset[str]:
    """Return the types that patterns such as "run.*,reactor.health" select; all of them without a pattern.

    A gap is always among them: who asked for some events must learn that some of them were missed.
    """
    given = patterns.split(",") if isinstance(patterns, str) else patterns or ()
    stripped = [one.strip() for one in given if one.strip()]
    selected = {events.EVENTS_GAP} if stripped else set(ALL_TYPES)
    for pattern in stripped:
        matching = {one for one in ALL_TYPES if fnmatchcase(one, pattern)}
        if not matching:
            known = ", ".join(sorted(ALL_TYPES))
            hint = did_you_mean(pattern, ALL_TYPES) or f"; there are {known}"
            message = f"no event has the type {pattern!r}{hint}"
            suggestions = close_names(pattern, ALL_TYPES)
            raise RequestError(message, code="unknown_event_type", pattern=pattern, suggestions=suggestions)
        selected |= matching
    return frozenset(selected)
