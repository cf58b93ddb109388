"""The doors to operations: whoever goes through one of them meets the same answers and the same errors.

Each door has a store that nothing else uses, so that a scenario begins with the same state everywhere.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_origin

import msgspec
import pytest

import tidemill as tm
from tests.service.server.serving_node import served
from tests.unit.cli.command_line import run
from tidemill.api.fields import InSeconds, Positional, Prompt
from tidemill.api.local import LocalApi
from tidemill.api.operation import ListOperation, Operation
from tidemill.api.port import AsyncApi
from tidemill.api.services import open_services
from tidemill.client import AsyncClient
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.kernel.errors import TidemillError
from tidemill.kernel.settings import Settings
from tidemill.storage.addresses import make_store


class Door(Protocol):
    """A way to ask for operations."""

    async def ask(self, operation: Operation[..., Any], fields: Mapping[str, Any]) -> Any:
        """Return the answer in JSON types, or the message of the error as {"error": ...}."""


class ApiDoor:
    """Operations as calls, in this process or of the client."""

    def __init__(self, api: AsyncApi) -> None:
        self._api = api

    async def ask(self, operation: Operation[..., Any], fields: Mapping[str, Any]) -> Any:
        """Call the operation."""
        try:
            if isinstance(operation, ListOperation):
                answer: Any = await self._api.collect(operation, fields, operation.default_limit)
            else:
                answer = await self._api.call(operation, fields)
        except TidemillError as error:
            return {"error": str(error)}
        return msgspec.json.decode(msgspec.json.encode(answer))


class CommandDoor:
    """The command that is derived from an operation, with `-o json`.

    An operation without one goes through the door next to it, so that the steps after it find what it has done.
    """

    def __init__(
        self,
        target: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        next_door: Door | None = None,
    ) -> None:
        self._target = target
        self._next_door = next_door
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    async def ask(self, operation: Operation[..., Any], fields: Mapping[str, Any]) -> Any:
        """Run the command, in a thread: it runs a loop of its own."""
        if (words := command_words(operation, fields)) is None:
            assert self._next_door is not None, f"{operation.name} has no command for {fields}"
            return await self._next_door.ask(operation, fields)
        secret = next((str(fields[one.name]) for one in operation.fields if one.marker(Prompt) is not None), "")
        self._monkeypatch.setattr("sys.stdin", StringIO(secret))
        self._capsys.readouterr()
        code = await asyncio.to_thread(run, self._monkeypatch, *self._target, *words, "-o", "json")
        said = self._capsys.readouterr()
        if code:
            assert code == 2, said.err
            return {"error": said.err.removesuffix("\n")}
        answer = json.loads(said.out)
        if operation.answer is type(None):
            assert True in answer.values()  # such as {"pool": "warehouse", "deleted": true}
            return None
        return answer


def command_words(operation: Operation[..., Any], fields: Mapping[str, Any]) -> list[str] | None:
    """Return the command of an operation, with the fields of a request as arguments and options; None without one."""
    for verb in operation.verbs:
        if verb.command is not None and verb.fixed.items() <= fields.items():
            words, fixed = verb.command.name.split(), verb.fixed
            break
    else:
        return None
    for one in operation.fields:
        if one.name not in fields or one.name in fixed or one.marker(Prompt) is not None:
            continue
        value = fields[one.name]
        if get_origin(one.bare_type) is list:
            text = ",".join(value)
        else:
            text = value if isinstance(value, str) or one.marker(InSeconds) is not None else json.dumps(value)
        is_argument = one.place == "path" or one.marker(Positional) is not None
        words += [text] if is_argument else [f"--{one.name.replace('_', '-')}", text]
    return words


class Visitor(NamedTuple):
    """What a door is made with."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    load: tuple[Any, ...] = ()
    """What the nodes load."""
    prepare: Callable[[tm.Node], Awaitable[None]] | None = None
    """What happens on them before the first request."""


@asynccontextmanager
async def prepared_node(visitor: Visitor, store: str | None = None) -> AsyncIterator[tm.Node]:
    """Run a node that has what the first request finds."""
    async with tm.Node(load=visitor.load, store=store) as node:
        if visitor.prepare is not None:
            await visitor.prepare(node)
        yield node


@asynccontextmanager
async def store_services(visitor: Visitor, name: str) -> AsyncIterator[tuple[str, ApiDoor]]:
    """Ask the services of a store that no node has; return its address too."""
    address = f"sqlite:///{visitor.folder}/{name}.db"
    if visitor.prepare is not None:
        async with prepared_node(visitor, address):
            pass
    store = make_store(address)
    await store.open()
    try:
        yield address, ApiDoor(LocalApi(open_services(store, Settings.read()), LOCAL_PRINCIPAL))
    finally:
        await store.close()


@asynccontextmanager
async def node_door(visitor: Visitor) -> AsyncIterator[Door]:
    """Ask the services of a node."""
    async with prepared_node(visitor) as node:
        yield ApiDoor(LocalApi(node.services, LOCAL_PRINCIPAL))


@asynccontextmanager
async def store_door(visitor: Visitor) -> AsyncIterator[Door]:
    """Ask the services of a store that no node has."""
    async with store_services(visitor, "bare") as (_, door):
        yield door


@asynccontextmanager
async def http_door(visitor: Visitor) -> AsyncIterator[Door]:
    """Ask a server with the client."""
    async with prepared_node(visitor) as node, served(node) as server, AsyncClient(server.url) as client:
        yield ApiDoor(client.api)


@asynccontextmanager
async def server_command_door(visitor: Visitor) -> AsyncIterator[Door]:
    """Type commands that work with a server."""
    async with prepared_node(visitor) as node, served(node) as server, AsyncClient(server.url) as client:
        yield CommandDoor(["--server", server.url], visitor.monkeypatch, visitor.capsys, ApiDoor(client.api))


@asynccontextmanager
async def store_command_door(visitor: Visitor) -> AsyncIterator[Door]:
    """Type commands that work on a store."""
    async with store_services(visitor, "commands") as (address, next_door):
        yield CommandDoor(["--store", address], visitor.monkeypatch, visitor.capsys, next_door)


MakeDoor = Callable[[Visitor], Any]

RUNNING_DOORS: dict[str, MakeDoor] = {
    "node": node_door,
    "http": http_door,
    "command --server": server_command_door,
}
"""Where graphs run."""

STORE_DOORS: dict[str, MakeDoor] = {"store": store_door, "command --store": store_command_door}
"""Where there is only a store."""
