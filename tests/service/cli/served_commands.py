"""Runs commands against a served node: in threads, as a command runs its own loop."""

import asyncio
import json
from typing import Any

import pytest

from tests.service.server.serving_node import Served
from tests.unit.cli.command_line import run


class CommandLine:
    """The command line of a user of one server."""

    def __init__(self, server: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    async def code(self, *arguments: str) -> int:
        """Run a command, and return its exit code."""
        self._capsys.readouterr()
        return await asyncio.to_thread(run, self._monkeypatch, "--server", self._server.url, *arguments)

    def printed(self) -> str:
        """Return what the last command printed."""
        return self._capsys.readouterr().out

    async def text(self, *arguments: str) -> str:
        """Run a command that succeeds, and return what it prints."""
        code = await self.code(*arguments)
        said = self._capsys.readouterr()
        assert code == 0, said.err
        return said.out

    async def json(self, *arguments: str) -> Any:
        """Run a command that succeeds, and return what it answers as JSON."""
        return json.loads(await self.text(*arguments, "-o", "json"))

    async def error(self, *arguments: str) -> str:
        """Run a command that does not complete, and return what it says about it."""
        assert await self.code(*arguments) == 2
        return self._capsys.readouterr().err
