"""A server that behaves like the API server of Kubernetes, over real HTTP, with the faults that a test asks for.

`test_api_behaviour.py` holds it to what a real one does.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import h11
import httpx

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.objects import ApiError, Change, Json, Key, Objects
from tests.kubernetes.permissions import Permissions
from tests.kubernetes.selectors import Matches, select

VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
BOOKMARK_INTERVAL = 0.5


class Request(NamedTuple):
    """A request, and what it asks for."""

    verb: str
    resource: str
    namespace: str
    name: str
    part: str
    """A part of an object, such as its status."""
    query: dict[str, str]
    body: Json
    is_strategic: bool
    """Whether its patch merges conditions by their types."""

    @property
    def key(self) -> Key:
        """The object that it is about."""
        return (self.resource, self.namespace, self.name)


class Cut(Exception):  # noqa: N818 - it is no error of the server
    """The connection breaks, although the request was carried out."""


Fault = Callable[[Request], "ApiError | Cut | str | float | None"]
"""Makes a request fail, also with a page that no API server wrote, or take so many seconds; None leaves it alone."""


class ApiServer:
    """The server. `open_api_server` makes one."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.requests: list[Request] = []
        """Everything that was asked for, in order."""
        self.fault: Fault = lambda request: None
        self._permissions = Permissions(self.objects)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        """Set with the next change, and then replaced."""
        self._port = 0
        self.objects.on_change = self._wake_watches

    @property
    def cluster(self) -> Cluster:
        """The server for its administrator."""
        return Cluster(f"http://127.0.0.1:{self._port}", self._permissions.administrator)

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and cut off every connection; objects stay."""
        assert self._server is not None
        self._server.close()
        serving = list(self._connections.values())
        self.cut_connections()
        if serving:
            await asyncio.wait(serving)

    def cut_connections(self) -> None:
        """Cut off every connection, in the middle of what is sent."""
        for writer, task in self._connections.items():
            writer.transport.abort()
            task.cancel()

    def count(self, verb: str, resource: str) -> int:
        """Return how often something was asked for."""
        return sum((one.verb, one.resource) == (verb, resource) for one in self.requests)

    def _wake_watches(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[writer] = task
        try:
            with suppress(ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
                await self._serve_connection(reader, writer)
        finally:
            del self._connections[writer]
            writer.close()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        while True:
            head, body = await _read_request(connection, reader)
            if head is None:
                return
            await self._answer(_Sender(connection, writer), head, body)
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _answer(self, sender: "_Sender", head: h11.Request, body: bytes) -> None:
        try:
            headers = {name.decode().lower(): value.decode() for name, value in head.headers}
            identity = self._permissions.authenticate(headers.get("authorization", ""))
            request = _parse(head.method.decode(), head.target.decode(), body, headers.get("content-type", ""))
            self.requests.append(request)
            fault = self.fault(request)
            if isinstance(fault, str):
                await sender.send_text(502, fault, "text/html")
                return
            await self._apply_fault(request, fault)
            asked = "/".join(filter(None, [request.resource, request.part]))
            self._permissions.authorize(identity, request.verb, asked, request.namespace)
            if request.verb == "watch":
                await self._watch(sender, request)
            elif request.part == "log":
                await self._send_log(sender, request)
            else:
                code, answer = self._act(request)
                await sender.send(code, answer)
        except ApiError as error:
            retry = {"Retry-After": "1"} if error.code == httpx.codes.TOO_MANY_REQUESTS else {}
            await sender.send(error.code, error.status, retry)

    async def _apply_fault(self, request: Request, fault: "ApiError | Cut | float | None") -> None:
        if isinstance(fault, ApiError):
            raise fault
        if isinstance(fault, Cut):
            self._act(request)
            raise ConnectionError
        if fault is not None:
            await asyncio.sleep(fault)

    # -- requests

    def _act(self, request: Request) -> tuple[int, Json]:
        objects, key, body = self.objects, request.key, request.body
        match request.verb, request.part:
            case "create", "token":
                token = self._permissions.issue(request.namespace, request.name)
                return 201, {"kind": "TokenRequest", "status": {"token": token}}
            case "create", "binding":
                objects.bind(("pods", *key[1:]), body["target"]["name"])
                return 201, {"kind": "Status", "status": "Success"}
            case "create", _:
                dry_run = request.query.get("dryRun") == "All"
                return 201, objects.create(request.resource, request.namespace, body, dry_run=dry_run)
            case "list", _:
                return 200, self._list(request)
            case "get", _:
                return 200, objects.get(key)
            case "update", _:
                return 200, objects.replace(key, body)
            case "patch", part:
                return 200, objects.patch(key, body, part or None, is_strategic=request.is_strategic)
            case _ if request.resource == "namespaces":
                return 200, objects.delete_namespace(request.name)
            case _:
                asked = request.query.get("gracePeriodSeconds")
                options = body | ({"gracePeriodSeconds": int(asked)} if asked is not None else {})
                return 200, objects.delete(key, options)

    def _list(self, request: Request) -> Json:
        version = int(request.query.get("resourceVersion") or 0)
        if version > self.objects.version:
            message = f"Timeout: Too large resource version: {version}, current: {self.objects.version}"
            raise ApiError(504, "Timeout", message)
        matches = _selector(request)
        found = [one for one in self.objects.select(request.resource, request.namespace) if matches(one)]
        first = int(request.query.get("continue") or 0)
        last = first + int(request.query.get("limit") or len(found) or 1)
        metadata = {"resourceVersion": str(self.objects.version)}
        if last < len(found):
            metadata["continue"] = str(last)
        return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": found[first:last]}

    async def _watch(self, sender: "_Sender", request: Request) -> None:
        """Send changes line by line, until the time of the request is over."""
        asked, matches = request.query.get("resourceVersion"), _selector(request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + float(request.query.get("timeoutSeconds", "60"))
        version = self.objects.version if asked in (None, "", "0") else int(asked)
        await sender.begin()
        if asked in (None, "", "0"):
            for one in filter(matches, self.objects.select(request.resource, request.namespace)):
                await sender.send_line({"type": "ADDED", "object": one})
        marked_at = loop.time()
        while (remaining := deadline - loop.time()) > 0:
            if version < self.objects.oldest:
                message = f"too old resource version: {version} ({self.objects.oldest})"
                await sender.send_line({"type": "ERROR", "object": ApiError(410, "Expired", message).status})
                break
            changed = self._changed
            for change in [one for one in self.objects.history if one.version > version]:
                version = change.version
                if (event := _to_event(change, request, matches)) is not None:
                    await sender.send_line(event)
            if "allowWatchBookmarks" in request.query and loop.time() - marked_at >= BOOKMARK_INTERVAL:
                marked_at = loop.time()
                bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}}
                await sender.send_line({"type": "BOOKMARK", "object": bookmark})
            with suppress(TimeoutError):
                async with asyncio.timeout(min(remaining, BOOKMARK_INTERVAL)):
                    await changed.wait()
        await sender.end()

    async def _send_log(self, sender: "_Sender", request: Request) -> None:
        """Fetch the log of a pod from its kubelet."""
        pod = self.objects.get(request.key)
        if (node := pod["spec"].get("nodeName")) is None:
            await sender.send_text(204, "")
            return
        port = self.objects.get(("nodes", "", node))["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        container = pod["spec"]["containers"][0]["name"]
        path = f"/containerLogs/{request.namespace}/{request.name}/{container}"
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            answer = await client.get(f"https://127.0.0.1:{port}{path}", params=request.query)
        await sender.send_text(answer.status_code, answer.text)


class _Sender:
    """Sends the answer to one request."""

    def __init__(self, connection: h11.Connection, writer: asyncio.StreamWriter) -> None:
        self._connection = connection
        self._writer = writer

    async def send(self, code: int, body: Json, headers: dict[str, str] | None = None) -> None:
        """Send a whole object."""
        await self._send_all(code, "application/json", json.dumps(body).encode(), headers or {})

    async def send_text(self, code: int, body: str, kind: str = "text/plain") -> None:
        """Send a text."""
        await self._send_all(code, kind, body.encode(), {})

    async def begin(self) -> None:
        """Begin a stream of lines."""
        headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
        await self._write(h11.Response(status_code=200, headers=headers))

    async def send_line(self, event: Json) -> None:
        """Send one line of a stream."""
        await self._write(h11.Data(data=json.dumps(event).encode() + b"\n"))

    async def end(self) -> None:
        """End a stream."""
        await self._write(h11.EndOfMessage())

    async def _send_all(self, code: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
        length = [] if code == httpx.codes.NO_CONTENT else [("Content-Length", str(len(body)))]
        await self._write(h11.Response(status_code=code, headers=[("Content-Type", kind), *length, *headers.items()]))
        if body:
            await self._write(h11.Data(data=body))
        await self.end()

    async def _write(self, event: Any) -> None:
        self._writer.write(self._connection.send(event) or b"")
        await self._writer.drain()


async def _read_request(connection: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request | None, bytes]:
    head, body = None, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return head, body
        else:
            return None, b""


def _parse(method: str, target: str, body: bytes, kind: str) -> Request:
    """Return what a request asks for: /api/v1/namespaces/NAMESPACE/RESOURCE/NAME/PART."""
    address = urlsplit(target)
    query = dict(parse_qsl(address.query))
    path = address.path.strip("/").split("/")
    path = path[2:] if path[0] == "api" else path[3:]
    namespace = ""
    if path[0] == "namespaces" and len(path) > 2:
        namespace, path = path[1], path[2:]
    resource, name, part = (*path, "", "", "")[:3]
    verb = VERBS[method]
    if verb == "get" and not name:
        verb = "watch" if query.get("watch") == "true" else "list"
    is_strategic = kind.startswith("application/strategic-merge-patch")
    return Request(verb, resource, namespace, name, part, query, json.loads(body) if body else {}, is_strategic)


def _selector(request: Request) -> Matches:
    return select(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))


def _to_event(change: Change, request: Request, matches: Matches) -> Json | None:
    """Return a change as a watch with a selector sees it; None if it does not."""
    resource, namespace, _ = change.key
    if resource != request.resource or request.namespace not in ("", namespace):
        return None
    was = change.before is not None and matches(change.before)
    if change.after is not None and matches(change.after):
        return {"type": "MODIFIED" if was else "ADDED", "object": change.after}
    if not was or change.before is None:
        return None
    last = change.before if change.after is None else change.after
    return {"type": "DELETED", "object": last}


@asynccontextmanager
async def open_api_server() -> AsyncIterator[ApiServer]:
    """Run a server in this loop."""
    server = ApiServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
