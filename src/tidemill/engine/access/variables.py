"""Variables: values that operators set and author code reads."""

from typing import Any

from tidemill.access.principal import Principal
from tidemill.engine.access.audit_log import AuditLog
from tidemill.engine.access.given_values import GivenValues
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.limits import NAME_RULE, is_name
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.tables.variables import ListedVariable, VariableRow, Variables


def check_name(kind: str, name: str) -> None:
    """Raise RequestError unless a text can name a variable or a secret."""
    if not is_name(name):
        raise RequestError(f"the name of a {kind} is {NAME_RULE}, not {name!r}", code="invalid_name")


class VariableService:
    """Variables of all tenants."""

    def __init__(self, variables: Variables, audit: AuditLog, clock: Clock, given: GivenValues) -> None:
        self._variables = variables
        self._audit = audit
        self._clock = clock
        self._given = given

    async def set(self, principal: Principal, name: str, value: Any, before: VariableRow | None = None) -> VariableRow:
        """Set a variable of the principal's tenant to anything that JSON can express.

        With `before` it replaces only that version: RequestError if the variable has changed since.
        """
        variable = self._make(principal, name, value)
        if before is None:
            await self._variables.upsert(variable)
        elif not await self._variables.replace(variable, before):
            message = f"variable '{name}' has changed since you read it: read it again"
            raise RequestError(message, code="stale_etag", status=412)
        await self._audit.record(principal, "variable.set", name)
        return variable

    async def create(self, principal: Principal, name: str, value: Any) -> VariableRow:
        """Set a new variable of the principal's tenant; RequestError if it exists."""
        variable = self._make(principal, name, value)
        if not await self._variables.add(variable):
            raise RequestError(f"there is a variable '{name}' already", code="variable_exists", status=409, name=name)
        await self._audit.record(principal, "variable.set", name)
        return variable

    def _make(self, principal: Principal, name: str, value: Any) -> VariableRow:
        check_name("variable", name)
        now, tenant = self._clock.now(), principal.tenant
        return VariableRow(tenant=tenant, name=name, value=value, updated_at=now, updated_by=principal.actor)

    async def get(self, tenant: str, name: str) -> VariableRow:
        """Return a variable of a tenant."""
        variable = await self._variables.get(tenant, name) if is_name(name) else None
        if variable is None:
            raise await self._not_found(tenant, name)
        return variable

    async def read(self, tenant: str, name: str) -> Any:
        """Return the value of a variable to author code of its tenant: as the node was given it, or as it is stored."""
        if tenant == self._given.tenant and name in self._given.variables:
            return self._given.variables[name]
        return (await self.get(tenant, name)).value

    async def list_for(self, principal: Principal) -> list[ListedVariable]:
        """Return the variables of the principal's tenant, by name, without large values."""
        return await self._variables.for_tenant(principal.tenant)

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete a variable of the principal's tenant."""
        if not is_name(name) or not await self._variables.delete(principal.tenant, name):
            raise await self._not_found(principal.tenant, name)
        await self._audit.record(principal, "variable.delete", name)

    async def _not_found(self, tenant: str, name: str) -> NotFoundError:
        known = [one.variable.name for one in await self._variables.for_tenant(tenant)]
        return NotFoundError("variable", name, f"there is no variable '{name}'{did_you_mean(name, known)}", known)
