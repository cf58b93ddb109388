"""A stand-in for Vault: answers requests for secrets as version 2 of its key-value engine does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TOKEN = "hvs.canary-of-the-tests"


class VaultServer:
    """Has the data of secrets by their path, refuses other tokens, and counts its answers."""

    def __init__(self) -> None:
        self.data: dict[str, dict[str, object]] = {}
        self.requests: list[str] = []
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        self.requests.append(path)
        status, body = "404 Not Found", '{"errors": []}'
        if f"x-vault-token: {TOKEN}\r\n" not in head.lower().replace(TOKEN.lower(), TOKEN):
            status, body = "403 Forbidden", '{"errors": ["permission denied"]}'
        elif path in self.data:
            status, body = "200 OK", json.dumps({"data": {"data": self.data[path], "metadata": {"version": 1}}})
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def vault_server() -> AsyncIterator[VaultServer]:
    """Run a Vault on a free port."""
    vault = VaultServer()
    async with await asyncio.start_server(vault.handle, "127.0.0.1", 0) as server:
        vault.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield vault
