"""The client: everything that a server can do, as methods."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemill.api.handles import AsyncAccumulatorHandle, AsyncReactorHandle, AsyncRun, name_of
from tidemill.api.packages import PackageCheck, PackageInfo
from tidemill.api.port import AsyncApi
from tidemill.api.runs import list_runs, start_run
from tidemill.api.system import Identity, ServerInfo
from tidemill.client import calls
from tidemill.client.async_pusher import AsyncEventPusher
from tidemill.client.asynchronous.operations import AsyncOperations
from tidemill.client.asynchronous.remote_api import AsyncRemoteApi
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import ARCHIVE, NDJSON, command, encode, make, name_in_path, put
from tidemill.client.connection import DEFAULT_RETRY, DEFAULT_TIMEOUT, Connection
from tidemill.client.push_window import PusherOptions
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import list_events
from tidemill.kernel.backoff import Retry
from tidemill.kernel.durations import Duration
from tidemill.kernel.errors import RequestError
from tidemill.packages.format.archive import read_folder_or_archive
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow


class AsyncClient(AsyncOperations):
    """A client of a Tidemill server.

    `key` is an API key; `tenant` names the tenant that an admin of the instance acts for. `timeout` is that of one
    request. `retry` says how often a request is repeated that did not reach the server, or that the server asks to
    repeat; starts and pushes keep their idempotency key, so that they happen once.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        self._transport = AsyncTransport(Connection(url, key=key, tenant=tenant, timeout=timeout, retry=retry))
        self._api = AsyncRemoteApi(self._transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._transport.connection.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._transport.aclose()

    @property
    def api(self) -> AsyncApi:
        """Carries any operation out at the server: for code that does not name one."""
        return self._api

    async def version(self) -> ServerInfo:
        """Return the version of the server."""
        return await self._transport.send(calls.get("/version", ServerInfo))

    async def me(self) -> Identity:
        """Return who the server takes this client for."""
        return await self._transport.send(calls.get("/me", Identity))

    async def events(self, types: str | None = None, *, after: str = "") -> AsyncIterator[dict[str, Any]]:
        """Yield what happens on the server as it happens, across reconnects: `types` such as "run.*,reactor.health".

        `after` is the `id` of the last event that was received: the feed continues after it.
        """
        call = calls.get("/events", dict[str, Any], types=types)
        async with aclosing(self._transport.follow(call, ends=False, after=after)) as events:
            async for event in events:
                yield call.read(event.data)

    # -- runs

    async def start(
        self, workflow: str | Workflow, given: Mapping[str, Any] | None = None, /, **params: Any
    ) -> AsyncRun:
        """Start a run of a workflow, once even if the request is repeated; params are keywords or a mapping."""
        if not isinstance(given, Mapping | None):
            message = f"params are keywords, or a mapping by their names, not {given!r}"
            raise RequestError(message, code="invalid_params")
        run = await self._api.call(start_run, {"name": name_of(workflow), "params": {**(given or {}), **params}})
        return AsyncRun(self._api, run.id)

    def run_handle(self, id: str) -> AsyncRun:
        """Return a handle on a run by its id."""
        return AsyncRun(self._api, id)

    async def runs(
        self,
        workflow: str | Workflow | None = None,
        state: RunState | str | Collection[RunState | str] | None = None,
        limit: int | None = 50,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str = "",
        tag: str = "",
        cause: str = "",
        key: str = "",
        unresolved: bool = False,
    ) -> list[AsyncRun]:
        """Return the newest runs, newest first; `limit=None` for all.

        `text` is a part of an id, a workflow, a note, or a param; `tag` is one of the workflow. `cause` is what started
        the run, such as "schedule", or its name, such as that of a trigger or reactor. `key` is that of a schedule,
        what `dedup` says, or the id of a backfill. `unresolved` leaves the failed runs that need a person.
        """
        name = None if workflow is None else name_of(workflow)
        fields: dict[str, object] = {"workflow": name, "state": state, "since": since, "until": until, "text": text}
        fields |= {"tag": tag, "cause": cause, "key": key, "unresolved": unresolved}
        return [AsyncRun(self._api, one.id, one) for one in await self._api.collect(list_runs, fields, limit)]

    # -- pushes, reactors and accumulators

    async def push(self, accumulator: str | Accumulator, event: Any) -> Receipt:
        """Push an event, once even if the request is repeated; bytes are JSON already.

        An event that does not fit is a dead letter, and the receipt says so; one that is rejected raises RequestError.
        """
        path = f"/accumulators/{name_in_path(name_of(accumulator))}/events"
        return await self._transport.send(make(path, Receipt, event))

    async def push_many(self, accumulator: str | Accumulator, events: Iterable[Any]) -> list[Receipt]:
        """Push events in one request, in order; return their receipts."""
        path = f"/accumulators/{name_in_path(name_of(accumulator))}/events"
        body = b"\n".join(encode(event) for event in list_events(events))
        return (await self._transport.send(make(path, dict[str, list[Receipt]], body, content_type=NDJSON)))["receipts"]

    def pusher(
        self,
        accumulator: str | Accumulator,
        *,
        batch: int = 256,
        window: int = 32,
        linger: Duration = "20ms",
        raises: bool = True,
    ) -> AsyncEventPusher:
        """Return a pusher for many events: over one WebSocket, in order, continued after a reconnect.

        It sends `batch` events together, or fewer after `linger`. A push waits while `window` batches are not
        acknowledged, and the end of the block waits for all. If events were not accepted, the end raises a RequestError
        (`events_not_accepted`), or with `raises=False` leaves them in `problems`.
        """
        options = PusherOptions(batch=batch, window=window, linger=linger, raises=raises)
        return AsyncEventPusher(self._transport.connection, name_of(accumulator), options)

    def accumulator(self, accumulator: str | Accumulator) -> AsyncAccumulatorHandle:
        """Return a handle on an accumulator."""
        return AsyncAccumulatorHandle(self._api, name_of(accumulator))

    def reactor(self, name: str) -> AsyncReactorHandle:
        """Return a handle on a reactor; one that another tenant shares is named `tenant/name`."""
        return AsyncReactorHandle(self._api, name)

    # -- packages

    async def upload(self, path: str | Path, *, allow_downgrade: bool = False) -> PackageInfo:
        """Upload the archive or the folder of a package, which every node on the store loads.

        Returns when the server has loaded it, has failed to, or after about ten seconds: `state` says which.
        """
        path_, raw = _read_package(path)
        call = put(path_, PackageInfo, raw, content_type=ARCHIVE, allow_downgrade=allow_downgrade)
        return await self._transport.send(call)

    async def check_package(self, path: str | Path) -> PackageCheck:
        """Check the archive or the folder of a package without publishing it: what it reads of kept state."""
        path_, raw = _read_package(path)
        call = command(f"{path_}/check", PackageCheck, raw, content_type=ARCHIVE, is_repeatable=True)
        return await self._transport.send(call)


def _read_package(path: str | Path) -> tuple[str, bytes]:
    """Return the path of a package in the API, and its archive, of an archive or a folder."""
    contents = read_folder_or_archive(Path(path))
    return f"/packages/{name_in_path(contents.manifest.name)}", contents.raw or contents.to_archive()
