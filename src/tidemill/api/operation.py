"""Operations: what a caller can ask Tidemill for. Each is declared once, and every surface is derived from it.

An operation is a function of the services, the caller, and the fields of a request; it returns the answer. Its
declaration adds what the surfaces need: an HTTP form, the permission, the word for the audit log, and a command.

    @operation(PUT("/pools/{name}"), Permission.INSTANCE, audit="pool.set", command=CommandForm("pool set"))
    async def set_pool(services: Services, caller: Principal, name: str, slots: Slots) -> Pool:

A field that the path names is part of the path; one that is marked as `Header` is a header. Other fields are the query
of a GET, and the body of everything else.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec

from tidemill.access.principal import Permission, Principal, ResourceKind
from tidemill.api.errors import FieldProblem, InvalidRequestError
from tidemill.api.fields import Header, Place, RequestField, find_marker
from tidemill.api.paging import Page, PageRequest
from tidemill.api.services import Services
from tidemill.kernel.suggestions import did_you_mean

P = ParamSpec("P")
Answer = TypeVar("Answer")
Item = TypeVar("Item")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation answers with, or a part of it: the same struct on every surface.

    msgspec reads `frozen` and `kw_only` from each class, so every message repeats both.
    """

    @classmethod
    def of(cls, row: object) -> Self:
        """Return the message about a row: its attributes of the same names."""
        return msgspec.convert(row, cls, from_attributes=True)


class RequestKey(NamedTuple):
    """The idempotency key of a request. An operation that declares it as `request` makes the same thing once.

    The answer to any other POST is kept for its key as well. If the server ends before it has kept the answer, a
    repetition of such a request is an error, because it may have had its effect.
    """

    effect: str
    """The id of what the request makes: the same for each repetition."""
    started_at: datetime
    """When the request was made first."""
    is_repetition: bool = False
    """Whether the request was made before, so that its effect may exist."""
    was_lost: bool = False
    """Whether the server that handled it ended, so that its effect is not known.

    Only commands that fire a reactor need it: their effect has no id by which it could be found.
    """


class HttpForm(NamedTuple):
    """The HTTP form of an operation."""

    method: Method
    path: str
    """Below the base path, with fields in braces."""
    status: int = 200
    location: str | None = None
    """Where that is which the operation makes, or the list that has it: a path with fields of the answer in braces.

    An operation that makes something has one. Its status is 201 then, and the header `Location` has the path.
    """
    is_private: bool = False
    """Whether the answer has a secret: nothing keeps it, neither a cache nor an idempotency key."""
    is_idempotent: bool = True
    """Whether a second request changes nothing more, so that a client may repeat one whose answer was lost."""
    may_make_nothing: bool = False
    """Whether the field that `location` has may be None: then nothing was made, and the status is 200."""
    errors: tuple[int, ...] = ()
    """Statuses of errors that other operations of the method do not have, for the OpenAPI document."""


def GET(path: str, *, errors: tuple[int, ...] = ()) -> HttpForm:  # noqa: N802, the name of the method
    """Return the form of an operation that reads."""
    return HttpForm("GET", path, errors=errors)


def POST(  # noqa: N802
    path: str,
    *,
    location: str | None = None,
    is_private: bool = False,
    is_idempotent: bool = False,
    may_make_nothing: bool = False,
    errors: tuple[int, ...] = (),
) -> HttpForm:
    """Return the form of an operation that creates or does something."""
    status = 200 if location is None else 201
    return HttpForm("POST", path, status, location, is_private, is_idempotent, may_make_nothing, errors)


def PUT(path: str, *, errors: tuple[int, ...] = ()) -> HttpForm:  # noqa: N802
    """Return the form of an operation that sets something."""
    return HttpForm("PUT", path, errors=errors)


def PATCH(path: str) -> HttpForm:  # noqa: N802
    """Return the form of an operation that changes a part of something."""
    return HttpForm("PATCH", path)


def DELETE(path: str) -> HttpForm:  # noqa: N802
    """Return the form of an operation that deletes something, and answers with nothing."""
    return HttpForm("DELETE", path, 204)


class CommandForm(NamedTuple):
    """The command of an operation, and how it prints the answer."""

    name: str
    """A noun and a verb: "pool set"."""
    columns: tuple[str, ...] = ()
    """The fields that the table of a list shows; a narrow terminal drops the last ones first.

    Those of a single answer are all that it shows. "last_run.state" is a field of a field, "tasks[].name" that of each
    item of a list.
    """
    rare: tuple[str, ...] = ()
    """The columns that are left out if no item has a value for them."""
    zoned: tuple[str, ...] = ()
    """The columns whose times are shown in their own time zone, not in that of the machine."""
    empty: str = ""
    """What a list without items says, with fields of the request in braces."""
    done: str = ""
    """What a change says, with fields of the request and the answer in braces."""
    shows: str | None = None
    """The one field of the answer that is printed, as it is."""
    success: str | None = None
    """The field of the answer that is false if it was in vain: the command ends with exit code 1 then."""
    more: str = ""
    """What the help of the command says after the docstring of the operation."""
    creates_store: bool = False
    """Whether the command creates a store that does not exist yet."""

    @property
    def noun(self) -> str:
        """The first word."""
        return self.name.partition(" ")[0]

    @property
    def verb(self) -> str:
        """The words after the noun."""
        return self.name.partition(" ")[2]


class StreamItem(NamedTuple, Generic[Item]):
    """One item of a stream."""

    item: Item
    id: str | None = None
    """What a reader sends back to continue after this item; None: only after one that has an id."""


class StreamForm(NamedTuple):
    """How the answer of an operation is followed: as server-sent events, or as an iterator."""

    event: str
    """The type of its events."""
    item: type[Any]
    follow: Callable[..., Awaitable[AsyncGenerator[StreamItem[Any], None]]]
    """Takes the services, the caller, the id after which to continue, and the fields of a request."""


class Verb(NamedTuple):
    """One thing that an operation does: a method of the clients, and a command. It fixes some fields of the request."""

    name: str
    """The name of the method."""
    text: str
    """What it does: the docstring of the method, and the help of the command."""
    fixed: Mapping[str, Any]
    command: CommandForm | None = None


class Operation(Generic[P, Answer]):
    """One operation: call it with the services and the caller, or derive a surface from its attributes."""

    def __init__(
        self,
        function: Callable[..., Awaitable[Answer]],
        http: HttpForm,
        permission: Permission,
        *,
        audit: str | None,
        is_audited_by_service: bool,
        resource: ResourceKind | None,
        verbs: tuple[Verb, ...],
        default_limit: int | None,
        stream: StreamForm | None,
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.http = http
        self.permission = permission
        self.audit = audit
        self.is_audited_by_service = is_audited_by_service
        self.resource = resource
        self.verbs = verbs
        self.default_limit = default_limit
        """How many items of a list clients and commands read unless they are asked for others; None: all."""
        self.stream = stream
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    def __call__(
        self, services: Services, caller: Principal, /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[Answer]:
        """Carry the operation out."""
        return self.function(services, caller, *args, **kwargs)

    @property
    def noun(self) -> str:
        """The module that declares it, by which references group operations."""
        return self.function.__module__.rpartition(".")[2].replace("_", " ")

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        return " ".join((self.__doc__ or "").partition("\n\n")[0].split())

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @property
    def answer(self) -> Any:
        """The type of the answer."""
        return self._hints["return"]

    @property
    def takes_page(self) -> bool:
        """Whether a request says which page of a list it asks for; the answer to any other has the whole list."""
        return "page" in self._hints

    @property
    def makes_once(self) -> bool:
        """Whether its effect has an id, by which a repetition with the same idempotency key finds it."""
        return "request" in self._hints

    @cached_property
    def fields(self) -> tuple[RequestField, ...]:
        """The fields of a request, in the order of the function."""
        return tuple(
            RequestField(name, self._hints[name], one.default, self._place_of(name))
            for name, one in list(inspect.signature(self.function).parameters.items())[2:]
            if name not in ("page", "request")
        )

    def _place_of(self, field: str) -> Place:
        if f"{{{field}}}" in self.http.path:
            return "path"
        if find_marker(self._hints[field], Header) is not None:
            return "header"
        return "query" if self.http.method in ("GET", "DELETE") else "body"

    @cached_property
    def request_type(self) -> Any:
        """The struct of all fields, as HTTP sends them."""
        return self._struct("Fields", self.fields)

    @cached_property
    def body_type(self) -> Any:
        """The struct of the body; None without one."""
        fields = [one for one in self.fields if one.place == "body"]
        return self._struct("Request", fields) if fields else None

    def _struct(self, suffix: str, fields: Sequence[RequestField]) -> Any:
        return msgspec.defstruct(
            self.name.title().replace("_", "") + suffix,
            [
                (one.name, one.wire_type) if one.is_required else (one.name, one.wire_type, one.default)
                for one in fields
            ],
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
            rename={one.name: one.wire_name for one in fields},
            module=self.function.__module__,
        )

    def to_wire(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given fields of a request by the names and with the values that HTTP sends.

        A field that is None by default is left out if it is None. InvalidRequestError for a field that there is not.
        """
        known = [one.name for one in self.fields]
        if (unknown := next((name for name in fields if name not in known), None)) is not None:
            message = f"{self.name} has no field `{unknown}`{did_you_mean(unknown, known)}"
            raise InvalidRequestError(message, [FieldProblem(unknown, message)])
        given = [(one, fields[one.name]) for one in self.fields if one.name in fields]
        return {
            one.wire_name: one.to_wire(value) for one, value in given if value is not None or one.default is not None
        }


class ListOperation(Operation[P, Page[Item]], Generic[P, Item]):
    """An operation that answers with a page of a list."""

    @property
    def item(self) -> Any:
        """The type of an item."""
        (item,) = get_args(self.answer)
        return item


class _Declaration(Protocol):
    """Turns a function into an operation."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Services, Principal, PageRequest, P], Awaitable[Page[Item]]], /
    ) -> ListOperation[P, Item]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Services, Principal, P], Awaitable[Page[Item]]], /
    ) -> ListOperation[P, Item]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Services, Principal, P], Awaitable[Answer]], /
    ) -> Operation[P, Answer]: ...


def operation(
    http: HttpForm,
    permission: Permission,
    *,
    audit: str | None = None,
    is_audited_by_service: bool = False,
    resource: ResourceKind | None = None,
    verbs: tuple[Verb, ...] = (),
    command: CommandForm | None = None,
    default_limit: int | None = None,
    stream: StreamForm | None = None,
) -> _Declaration:
    """Declare an operation.

    Its method has the name of what it returns, if it only reads, else its own. An operation that does one of several
    things declares `verbs`. `is_audited_by_service` says that the service records the change, with details.
    """

    def declare(function: Callable[..., Any], /) -> Any:
        method = function.__name__.removeprefix("list_").removeprefix("get_")
        kind = ListOperation if get_origin(inspect.signature(function).return_annotation) is Page else Operation
        return kind(
            function,
            http,
            permission,
            audit=audit,
            is_audited_by_service=is_audited_by_service,
            resource=resource,
            verbs=verbs or (Verb(method, inspect.getdoc(function) or "", {}, command),),
            default_limit=default_limit,
            stream=stream,
        )

    return declare
