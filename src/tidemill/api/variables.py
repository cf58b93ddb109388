"""Variables: values that operators set and author code reads with `ctx.variable`."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.etags import check_etag
from tidemill.api.fields import Header, Positional
from tidemill.api.operation import DELETE, GET, PUT, CommandForm, Message, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services
from tidemill.storage.tables.variables import NamedValue

if TYPE_CHECKING:
    from tidemill.storage.tables.variables import ListedVariable, VariableRow

Value = Annotated[
    Any,
    Meta(description="The value: JSON, or else a text. 3 is a number, '\"3\"' and eu are texts.", examples=["eu"]),
    Positional(),
]

IfMatch = Annotated[
    str | None,
    Meta(description="The ETag of the variable that was read: the change fails if the variable has another one now."),
    Header("if-match"),
]

IfNoneMatch = Annotated[
    Literal["*"] | None,
    Meta(description="`*`: the change fails if there is a variable of that name."),
    Header("if-none-match"),
]


def etag_of(row: "VariableRow") -> str:
    """Return the ETag of a variable."""
    return f'"{int(row.updated_at.timestamp() * 1_000_000)}"'


class Variable(NamedValue, Message, frozen=True, kw_only=True):
    """A variable; its value is null if it is omitted."""

    omitted: dict[str, int] = {}
    """The value, with its bytes, if the list leaves it out because it is large; `GET` of the variable has it."""
    etag: str = ""
    """Changes whenever the variable does; `If-Match` takes it."""

    @classmethod
    def of_row(cls, row: "VariableRow") -> "Variable":
        """Return the message about a variable."""
        return cls(
            name=row.name, value=row.value, updated_at=row.updated_at, updated_by=row.updated_by, etag=etag_of(row)
        )

    @classmethod
    def listed(cls, one: "ListedVariable") -> "Variable":
        """Return a variable of a list, which leaves large values out."""
        variable, size = one
        return cls(
            name=variable.name,
            value=variable.value,
            updated_at=variable.updated_at,
            updated_by=variable.updated_by,
            omitted={} if size is None else {"value": size},
            etag=etag_of(variable),
        )


@operation(
    GET("/variables"),
    Permission.READ,
    command=CommandForm("variable list", columns=("name", "value", "updated_at", "updated_by"), empty="no variables"),
)
async def list_variables(services: Services, caller: Principal, page: PageRequest) -> Page[Variable]:
    """List the variables of the tenant; `omitted` names values that are too large for a list."""
    variables = await services.access.variables.list_for(caller)
    return page_of(variables, page, key=lambda one: one.variable.name, view=Variable.listed)


@operation(GET("/variables/{name}"), Permission.READ, command=CommandForm("variable show", shows="value"))
async def get_variable(services: Services, caller: Principal, name: str) -> Variable:
    """Return a variable."""
    return Variable.of_row(await services.access.variables.get(caller.tenant, name))


@operation(
    PUT("/variables/{name}"),
    Permission.WRITE,
    audit="variable.set",
    is_audited_by_service=True,
    command=CommandForm("variable set", done="variable '{name}' is set"),
)
async def set_variable(
    services: Services,
    caller: Principal,
    name: str,
    value: Value,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Variable:
    """Set a variable to anything that JSON can express."""
    if if_none_match is not None:
        return Variable.of_row(await services.access.variables.create(caller, name, value))
    before = None if if_match is None else await services.access.variables.get(caller.tenant, name)
    if if_match is not None and before is not None:
        check_etag(if_match, etag_of(before))
    return Variable.of_row(await services.access.variables.set(caller, name, value, before))


@operation(
    DELETE("/variables/{name}"),
    Permission.WRITE,
    audit="variable.delete",
    is_audited_by_service=True,
    command=CommandForm("variable delete"),
)
async def delete_variable(services: Services, caller: Principal, name: str) -> None:
    """Delete a variable."""
    await services.access.variables.delete(caller, name)
