"""Operations as calls in this process, on the services of a node or of a store without one."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from tidemill.access.principal import Principal
from tidemill.api.errors import invalid_field_error
from tidemill.api.operation import ListOperation, Operation
from tidemill.api.paging import MAX_LIMIT, PageRequest
from tidemill.api.runs import get_run
from tidemill.api.services import Services
from tidemill.graphs.state import ReactorState
from tidemill.kernel.durations import Duration, parse_duration
from tidemill.kernel.errors import RequestError
from tidemill.workflows.result import RunResult

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class LocalApi:
    """Carries operations out in this process, for one caller; a request is checked as a server checks it.

    The changes of a program that has the node itself are not audited: no principal has asked for them.
    """

    def __init__(self, services: Services, caller: Principal, *, is_audited: bool = True) -> None:
        self._services = services
        self._caller = caller
        self._is_audited = is_audited

    async def call(self, operation: Operation[..., Answer], fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a request with these fields, after the audit log has it."""
        with self._services.workflows.watcher.require_open():
            answer = await operation(self._services, self._caller, **_checked(operation, fields))
        if (
            self._is_audited
            and operation.audit is not None
            and not (operation.is_audited_by_service or fields.get("preview", False))
        ):
            target = "/".join(str(fields[one.name]) for one in operation.fields if one.place == "path")
            await self._services.access.audit.record(self._caller, operation.audit, target or operation.http.path)
        return answer

    async def collect(
        self, operation: ListOperation[..., Item], fields: Mapping[str, Any], limit: int | None
    ) -> list[Item]:
        """Return the items of a list, `limit` at most."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise RequestError(f"limit is at least 1, not {limit!r}", code="invalid_limit")
        checked, items, cursor = _checked(operation, fields), list[Item](), None
        if not operation.takes_page:
            return (await operation(self._services, self._caller, **checked)).items[:limit]
        while limit is None or len(items) < limit:
            size = MAX_LIMIT if limit is None else min(MAX_LIMIT, limit - len(items))
            with self._services.workflows.watcher.require_open():
                page = await operation(self._services, self._caller, PageRequest(size, cursor), **checked)
            items += page.items
            cursor = page.next
            if cursor is None:
                break
        return items

    async def stream(
        self, operation: ListOperation[..., Item], fields: Mapping[str, Any]
    ) -> AsyncGenerator[Item, None]:
        """Yield the items of a list as they come, until it has ended."""
        assert operation.stream is not None
        with self._services.workflows.watcher.require_open():
            given = _checked(operation, fields)
            async with aclosing(await operation.stream.follow(self._services, self._caller, None, **given)) as items:
                async for one in items:
                    yield one.item

    async def result(self, run: str, *, outputs: bool = True) -> RunResult:
        """Return the state of a run; its outputs have the types of the workflow if this process has loaded it."""
        if not outputs:
            return (await self.call(get_run, {"run": run})).to_result()
        with self._services.workflows.watcher.require_open():
            return await self._services.workflows.runs.load_result(self._caller, run)

    async def wait(self, run: str, timeout: Duration | None = None) -> RunResult:
        """Return the result of a run when it has ended; TimeoutError after the timeout."""
        seconds = None if timeout is None else _parse_timeout(timeout)
        with self._services.workflows.watcher.require_open():
            return await self._services.workflows.watcher.wait(self._caller, run, seconds)

    async def watch_reactor(self, name: str, every: Duration) -> AsyncGenerator[ReactorState, None]:
        """Yield the state of a reactor whenever it has changed, at most so often."""
        with self._services.workflows.watcher.require_open():
            changes = self._services.graphs.watch_reactor(self._caller, name, parse_duration(every))
            async with aclosing(changes) as states:
                async for state, _ in states:
                    yield state


def _parse_timeout(timeout: Duration) -> float:
    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise RequestError(f"timeout: {error}", code="invalid_timeout") from None


def _checked(operation: Operation[..., Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request, converted to their types; InvalidRequestError if one does not fit."""
    try:
        request = msgspec.convert(operation.to_wire(fields), operation.request_type)
    except msgspec.ValidationError as error:
        raise invalid_field_error(error, operation.request_type, "the request is invalid") from error
    return {one.name: getattr(request, one.name) for one in operation.fields}
