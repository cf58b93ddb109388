"""The rehearsal of "Back up and restore": a backup under load, kill -9 of the server, a restore into a new store."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.architecture.sources import ROOT
from tests.postgres import PostgresServer
from tests.service.workflows.pairs import until
from tests.system.cluster import LedgerProducer, Server, cluster, get
from tests.system.ledger_package import write_package
from tests.system.test_server_takeover import ledger, push_a_while, under_load

RUNS = 5
PAGE = (ROOT / "docs" / "how-to" / "back-up-and-restore.md").read_text(encoding="utf-8")
PROGRAMS = ("pg_dump", "pg_restore")
FLOW = """
import asyncio
import tidemill as tm

nap = tm.Workflow("nap")


@nap.task
async def doze() -> str:
    await asyncio.sleep(0.3)
    return "rested"
"""


async def start_runs(server: Server, count: int) -> None:
    """Start runs that are under way for a while."""
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1") as client:
        async with asyncio.timeout(20):
            while (await client.get("/workflows/nap")).is_error:  # noqa: ASYNC110 - its package is being loaded
                await asyncio.sleep(0.05)
        for _ in range(count):
            (await client.post("/workflows/nap/runs", json={})).raise_for_status()


async def tidemill(*words: str) -> Any:
    """Run a command; return the answer that it prints."""
    command = [sys.executable, "-m", "tidemill", *words, "-o", "json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, error = await process.communicate()
    assert process.returncode == 0, (out, error)
    return json.loads(out)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_backup_under_load_replaces_a_server_that_was_killed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """G-24: every event that was acknowledged before the backup is there, and the doctor finds nothing wrong."""
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new")]
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        stores = [await server.fresh_store(), await server.fresh_database()]
    file, packages = tmp_path / "backup.zip", tmp_path / "packages"
    packages.mkdir()
    (write_package(packages) / "napping.py").write_text(FLOW)
    async with cluster(stores[0], packages, 1) as (old,):
        producers = [LedgerProducer(f"p{index}", [old], index) for index in range(3)]
        async with under_load(producers):
            await push_a_while(producers)
            await start_runs(old, RUNS)
            before = {one.name: list(one.acknowledged) for one in producers}
            saved = await tidemill("db", "backup", str(file), "--store", stores[0])
            old.process.send_signal(signal.SIGKILL)
    assert saved["tables"]["runs"] == RUNS
    restored = await tidemill("db", "restore", str(file), "--store", stores[1])
    assert (restored["rows"], restored["healthy"]) == (saved["rows"], True)
    assert (await tidemill("doctor", "--store", stores[1]))["healthy"]
    async with cluster(stores[1], packages, 1) as (new,):

        async def is_live() -> bool:
            state = await get(new, "/reactors/ledger")
            return state is not None and state["health"] == "live"

        async def has_ended_all() -> bool:
            runs = await get(new, "/runs?state=success")
            return runs is not None and len(runs["items"]) == RUNS

        await until(is_live)
        accounts = await ledger(new)
        for name, acknowledged in before.items():
            assert accounts[name]["count"] >= len(acknowledged)
            assert accounts[name]["newest"] >= max(acknowledged)
            assert accounts[name]["late"] == []
        await until(has_ended_all)


async def test_the_commands_of_the_page_dump_and_restore_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    """S-6: as the role that the page recommends, from which the rows of all tenants are hidden otherwise."""
    (dump,), (restore,) = (re.findall(rf"^(?:PG\S+ .*)?{name} [\s\S]*?DATABASE\".*$", PAGE, re.M) for name in PROGRAMS)
    if not await postgres.execute("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dumper')"):
        await postgres.execute("CREATE ROLE dumper LOGIN")
    old, new = [(await postgres.fresh_database()).replace("postgres@", "dumper@") for _ in range(2)]
    for url in (old, new):
        await postgres.execute(f"GRANT CREATE ON DATABASE {url.rpartition('/')[2]} TO dumper")
    await tidemill("db", "upgrade", "--store", old)
    await tidemill("variable", "set", "answer", "42", "--store", old)
    for command in (dump, restore):
        given = {"DATABASE": old, "NEW_DATABASE": new, "PATH": f"{postgres.programs}:{os.environ['PATH']}"}
        process = await asyncio.create_subprocess_shell(command, env=os.environ | given, cwd=tmp_path, stderr=PIPE)
        _, error = await process.communicate()
        assert process.returncode == 0, error.decode()
    assert (await tidemill("doctor", "--store", new))["healthy"]
    assert (await tidemill("variable", "show", "answer", "--store", new))["value"] == 42
