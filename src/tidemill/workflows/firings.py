"""What a workflow that firings start must be like, and what its runs are started with."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import fields

from tidemill.kernel.errors import Location, Problem
from tidemill.workflows.condition import Condition
from tidemill.workflows.definition import OnFiring, Params

GIVEN = ("payload", "firing_id")
"""The params of a run that a firing starts."""


def firing_params(kind: type[Params] | None, payload: Mapping[str, Any], firing_id: str) -> dict[str, Any]:
    """Return what a run is started with: both, or those that its workflow declares."""
    given = {"payload": dict(payload), "firing_id": firing_id}
    return given if kind is None else {name: given[name] for name in GIVEN if name in _names(kind)}


def firing_problems(
    triggers: Iterable[object], params: type[Params] | None, location: Location | None
) -> Iterator[Problem]:
    """Yield what keeps firings from starting a workflow."""
    wishes = [one for one in triggers if isinstance(one, OnFiring)]
    for said in (*_about_expressions(wishes), *_about_params(params if wishes else None)):
        yield Problem(message=said, location=location)


def _about_expressions(wishes: list[OnFiring]) -> Iterator[str]:
    met: set[str] = set()
    for wish in wishes:
        if wish.reactor in met:
            yield f"on_firing({wish.reactor!r}) is there twice: join the expressions with ||"
        met.add(wish.reactor)
        try:
            if wish.when is not None:
                Condition(wish.when)
        except ValueError as error:
            yield f"on_firing({wish.reactor!r}, when={wish.when!r}): {error}"


def _about_params(kind: type[Params] | None) -> Iterator[str]:
    for field in fields(kind) if kind is not None else ():
        if field.required and field.name not in GIVEN:
            yield f"a firing gives {' and '.join(GIVEN)}, and not the param '{field.name}': give that one a default"


def _names(kind: type[Params]) -> set[str]:
    return {field.name for field in fields(kind)}
