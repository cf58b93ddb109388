"""Secrets and variables in tasks: read with `ctx.secret` and `ctx.variable`, and masked in everything they leave."""

import logging
import sys
from pathlib import Path

import pytest

import tidemill as tm
from tests.service.workflows.secretive import careless, careless_away, printing, reading
from tidemill.access.principal import Principal, Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.kernel.settings import Settings
from tidemill.telemetry.logs import writing_logs
from tidemill.worker import WorkerNode

CANARY = "canary-5f1d8c-do-not-leak"
EXECUTORS = ["in_process", "subprocess"]
ACME = Principal(tenant="acme", role=Role.ADMIN, actor="key:1")


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_task_reads_secrets_and_variables_of_its_tenant(executor: str) -> None:
    """S-6: with every executor, in `def` and `async def`."""
    async with tm.Node(load=[reading], executor=executor, tenant="acme") as node:
        await node.access.secrets.set(ACME, "password", CANARY)
        await node.access.variables.set(ACME, "region", {"name": "eu"})
        await node.access.variables.set(ACME, "nothing", None)
        await node.access.secrets.set(LOCAL_PRINCIPAL, "password", "of another tenant")
        result = await (await node.start("reading")).wait(timeout=60)
    assert result.outputs["read_both"] == [{"name": "eu"}, True, len(CANARY)]
    assert result.outputs["read_later"] == [{"name": "eu"}, len(CANARY)]
    assert result.outputs["read_unknown"] == "secret_not_found: there is no secret 'pasword' (did you mean 'password'?)"


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_canary_is_in_nothing_that_a_careless_task_leaves(
    executor: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S-6, fault 90: logs, printed output in pieces, errors, tracebacks, Python's logging and the database."""
    caplog.set_level(logging.DEBUG)
    async with tm.Node(f"sqlite:///{tmp_path}/tidemill.db", load=[careless], executor=executor) as node:
        await node.access.secrets.set(LOCAL_PRINCIPAL, "password", CANARY)
        run = await node.start("careless")
        result = await run.wait(timeout=60)
        lines = [line async for line in run.logs("talk")]
    assert result.state == "failed"
    check_for_canary(repr((lines, result)), tmp_path, caplog)


async def test_a_canary_is_in_nothing_that_a_careless_task_leaves_on_a_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S-6: a worker masks as every node does."""
    caplog.set_level(logging.DEBUG)
    address = f"sqlite:///{tmp_path}/tidemill.db"
    often = Settings(tick_interval=0.05)  # each looks into the file so often for what the other has done
    node, worker = (kind(address, load=[careless_away], settings=often) for kind in (tm.Node, WorkerNode))
    async with node, worker:
        await node.access.secrets.set(LOCAL_PRINCIPAL, "password", CANARY)
        run = await node.start("careless_away")
        result = await run.wait(timeout=60)
        lines = [line async for line in run.logs("talk")]
    assert result.state == "failed"
    check_for_canary(repr((lines, result)), tmp_path, caplog)


async def test_what_an_in_process_task_prints_is_masked(capsys: pytest.CaptureFixture[str]) -> None:
    """S-6: in the node's output and its logs, in pieces too; the streams are replaced only while they need to be."""
    streams = sys.stdout, sys.stderr
    with writing_logs("text", logging.WARNING):
        async with tm.Node(load=[printing]) as node:
            await node.access.secrets.set(LOCAL_PRINCIPAL, "password", CANARY)
            assert tuple(one.wrapped for one in (sys.stdout, sys.stderr)) == streams
            assert (await (await node.start("printing")).wait(timeout=60)).state == "success"
    assert (sys.stdout, sys.stderr) == streams
    out, err = capsys.readouterr()
    assert out == "before the secret is read\nit is *** ['***']\n***"
    assert "to stderr: ***\n" in err
    assert "signs in with ***" in err
    assert CANARY not in err


def check_for_canary(told: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Check that the canary is masked in what a run told, in every log record, and in every file of the store."""
    shown = told + caplog.text
    assert "the password is ***" in shown
    assert "cannot sign in with ***" in shown
    assert CANARY not in shown
    for record in caplog.records:
        assert CANARY not in repr(record.__dict__)
    for path in folder.iterdir():
        assert CANARY.encode() not in path.read_bytes(), path
