"""Secrets of a server: a subprocess task finds none, and what an in-process task prints shows none."""

import os
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.service.package_folders import package
from tests.system import prying
from tests.system.server_process import server_process
from tidemill.client import AsyncClient

PASSWORD = "canary-of-the-store"
MASTER_KEY = "Y2FuYXJ5LW9mLXRoZS1tYXN0ZXIta2V5LTMyLWJ5dGU="


async def test_a_subprocess_task_finds_no_secret_of_its_server(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-6: neither in its environment and its descriptors, nor in the command line and environment of its server."""
    address = (await postgres.fresh_store()).replace("@", f":{PASSWORD}@")
    monkeypatch.setenv("TIDEMILL_SECRET_KEYS", f"2026:{MASTER_KEY}")
    monkeypatch.setenv("TIDEMILL_POSTGRES_URL", address)
    monkeypatch.setenv("TIDEMILL_TICK_INTERVAL", "1.25s")
    folder = package(tmp_path / "prying", Path(prying.__file__).read_text(encoding="utf-8"))
    with server_process(address, "--no-auth") as server:
        async with AsyncClient(server.url) as client:
            await client.set_secret("password", "the master key is in use")
            await client.upload(folder)
            result = await (await client.start("prying")).result(timeout=60)
    found = "\n".join(result.outputs["look"])
    assert "TIDEMILL_TICK_INTERVAL=1.25s" in found
    assert f"tidemill server --store {address.replace(PASSWORD, '*' * len(PASSWORD))}" in found
    assert ("closed" in found) is (os.geteuid() != 0)  # root may read what it likes
    assert PASSWORD not in found
    assert MASTER_KEY not in found


PRINTING = """\
import logging
import os
import sys

import tidemill as tm

printing = tm.Workflow("printing")


@printing.task
def speak(ctx: tm.Context) -> None:
    secret = ctx.secret("password")
    print("printed:", secret)
    print("to stderr:", secret, file=sys.stderr)
    logging.getLogger("library").warning("logged: %s", secret)


@printing.task
def look() -> list[str]:
    return sorted(os.environ)
"""


async def test_the_output_of_a_server_shows_no_secret_that_a_task_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-6: with the default executor, whose code runs in the process of the server, and finds no keys there."""
    monkeypatch.setenv("TIDEMILL_SECRET_KEYS", f"2026:{MASTER_KEY}")
    capabilities = 'capabilities = ["secret:password"]\n'
    folder, log = package(tmp_path / "printing", PRINTING, manifest=capabilities), tmp_path / "log"
    with (
        log.open("w") as stderr,
        server_process(f"sqlite:///{tmp_path}/tidemill.db", "--no-auth", stderr=stderr) as server,
    ):
        async with AsyncClient(server.url) as client:
            await client.set_secret("password", PASSWORD)
            await client.upload(folder)
            result = await (await client.start("printing")).result(timeout=60)
        assert "PATH" in result.outputs["look"]
        assert "TIDEMILL_SECRET_KEYS" not in result.outputs["look"]
        assert server.stop() == 0
        assert server.process.stdout is not None
        shown = server.process.stdout.read() + log.read_text()
    for line in ("printed: ***", "to stderr: ***", "logged: ***"):
        assert line in shown
    assert PASSWORD not in shown
