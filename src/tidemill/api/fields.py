"""The fields of a request: what they are, and the markers that say what a surface cannot guess.

A marker is a part of the annotation: `Annotated[str, NameOf("workflow"), Positional()]`.
"""

import inspect
from collections.abc import Collection
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from tidemill.kernel.durations import MAX_DURATION_SECONDS, parse_positive_duration
from tidemill.kernel.errors import RequestError

Marker = TypeVar("Marker")
Place = Literal["path", "query", "header", "body"]
"""Where a request over HTTP has a field."""
REQUIRED: Any = inspect.Parameter.empty
"""The default of a field that has none."""


class Positional(NamedTuple):
    """Marks a field that is an argument of the command, not an option; in Python its keyword may be left out."""


class NameOf(NamedTuple):
    """Marks a field that names something, which a shell completes."""

    noun: str


class Keywords(NamedTuple):
    """Marks a mapping whose items Python code may also give as keywords."""


class Prompt(NamedTuple):
    """Marks a field that no command line shows: the command reads it from standard input."""

    text: str


class TenantName(NamedTuple):
    """Marks a name in a path that may be of another tenant, as `tenant/name`; HTTP has a route for these too."""


class WireName(NamedTuple):
    """Marks a field whose name on the wire is another one."""

    name: str


class Header(NamedTuple):
    """Marks a field that HTTP sends as a header."""

    name: str


class InSeconds(NamedTuple):
    """Marks a number of seconds for which Python code and commands may give any duration, such as "90d"."""


class RequestField(NamedTuple):
    """One field of a request."""

    name: str
    annotation: Any
    default: Any
    place: Place

    @property
    def is_required(self) -> bool:
        """Whether a request must have the field."""
        return self.default is REQUIRED

    def marker(self, kind: type[Marker]) -> Marker | None:
        """Return what marks the field, if it is marked so."""
        return find_marker(self.annotation, kind)

    @property
    def wire_name(self) -> str:
        """The name of the field in a query, a body or the headers."""
        marker = self.marker(WireName) or self.marker(Header)
        return self.name if marker is None else marker.name

    @property
    def wire_type(self) -> Any:
        """The type of the field in a query or a body."""
        is_duration = self.marker(InSeconds) is not None
        return Annotated[self.annotation, msgspec.Meta(description=self.wire_help)] if is_duration else self.annotation

    @property
    def bare_type(self) -> Any:
        """The type without its metadata, and without None."""
        return _bare(self.annotation)

    @property
    def help(self) -> str:
        """What the field means."""
        meta = self.marker(msgspec.Meta)
        return (meta and meta.description) or ""

    @property
    def wire_help(self) -> str:
        """What the field means over HTTP, where a duration is a number."""
        return self.help if self.marker(InSeconds) is None else f"{self.help} In seconds.".strip()

    def to_wire(self, value: Any) -> Any:
        """Return a value as HTTP sends it; a list of texts may be given as its only one."""
        if get_origin(self.bare_type) is list and isinstance(value, str | Collection):
            return [value] if isinstance(value, str) else list(value)
        if value is None or self.marker(InSeconds) is None:
            return value
        try:
            return parse_positive_duration(value)
        except ValueError as error:
            raise RequestError(f"{self.name}: {error}", code="invalid_duration") from None


Seconds = Annotated[float, msgspec.Meta(gt=0, le=MAX_DURATION_SECONDS), InSeconds()]
"""The type of a field that is a duration: seconds for operations and HTTP, any duration in Python and commands."""


def find_marker(annotation: Any, kind: type[Marker]) -> Marker | None:
    """Return the first marker of a kind in an annotation or in a part of it."""
    if get_origin(annotation) is Annotated:
        inner, *markers = get_args(annotation)
        found = next((one for one in markers if isinstance(one, kind)), None)
        return find_marker(inner, kind) if found is None else found
    return next((found for one in get_args(annotation) if (found := find_marker(one, kind)) is not None), None)


def _bare(annotation: Any) -> Any:
    """Return a type without its metadata, and without None."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [one for one in get_args(annotation) if one is not type(None)]
        return _bare(members[0]) if len(members) == 1 else annotation
    return annotation
