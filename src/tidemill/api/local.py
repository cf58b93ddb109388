"""Operations as calls in this process, on the services of a node or of a store without one."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tidemill.access.principal import Principal
from tidemill.api.errors import invalid_field_error
from tidemill.api.operation import ListOperation, Operation
from tidemill.api.paging import MAX_LIMIT, PageRequest
from tidemill.api.services import Services

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class LocalApi:
    """Carries operations out in this process, for one caller; a request is checked as a server checks it."""

    def __init__(self, services: Services, caller: Principal) -> None:
        self._services = services
        self._caller = caller

    async def call(self, operation: Operation[..., Answer], fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a request with these fields, after the audit log has it."""
        answer = await operation(self._services, self._caller, **_checked(operation, fields))
        if operation.audit is not None and not operation.is_audited_by_service:
            target = "/".join(str(fields[one.name]) for one in operation.fields if one.place == "path")
            await self._services.access.audit.record(self._caller, operation.audit, target or operation.http.path)
        return answer

    async def collect(
        self, operation: ListOperation[..., Item], fields: Mapping[str, Any], limit: int | None
    ) -> list[Item]:
        """Return the items of a list, `limit` at most."""
        checked, items, cursor = _checked(operation, fields), list[Item](), None
        if not operation.takes_page:
            return (await operation(self._services, self._caller, **checked)).items[:limit]
        while limit is None or len(items) < limit:
            size = MAX_LIMIT if limit is None else min(MAX_LIMIT, limit - len(items))
            page = await operation(self._services, self._caller, PageRequest(size, cursor), **checked)
            items += page.items
            cursor = page.next
            if cursor is None:
                break
        return items


def _checked(operation: Operation[..., Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request, converted to their types; InvalidRequestError if one does not fit."""
    try:
        request = msgspec.convert(operation.to_wire(fields), operation.request_type)
    except msgspec.ValidationError as error:
        raise invalid_field_error(error, operation.request_type, "the request is invalid") from error
    return {one.name: getattr(request, one.name) for one in operation.fields}
