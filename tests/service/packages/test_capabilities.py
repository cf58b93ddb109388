"""Capabilities: tasks of a package ask their node only for what its manifest names."""

from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.executors.remote.orders import InstalledCode, Order, decode_order
from tidemill.kernel.errors import RequestError
from tidemill.workflows.capabilities import Grants
from tidemill.workflows.node_calls import PushCall, SecretCall, StartCall, VariableCall
from tidemill.workflows.records import AttemptKey

ASKING = """\
import tidemill as tm


@tm.passthrough
def numbers(event: int) -> int:
    return event


counting = tm.Reactor("counting", [numbers])
called = tm.Workflow("called")
asking = tm.Workflow("asking")


@called.task
def answer() -> int:
    return 42


def outcome(call, *given):
    try:
        found = call(*given)
    except tm.RequestError as error:
        return f"{error.code}: {error}"
    return found if isinstance(found, str) else "done"


@asking.task
def ask(ctx: tm.Context) -> list[str]:
    return [
        outcome(ctx.secret, "bank_token"),
        outcome(ctx.variable, "region"),
        outcome(ctx.push, "numbers", 7),
        outcome(ctx.start, "called"),
    ]
"""
GIVEN: dict[str, Any] = {"variables": {"region": "eu"}, "secrets": {"bank_token": "hunter22"}}
ALL = '["secret:bank_token", "variable:region", "push:numbers", "start:called", "network:api.example.org"]'


async def answers(path: Path, executor: str = "in_process", **options: Any) -> list[str]:
    """Return what a task of a package has got of its node."""
    async with tm.Node(load=[path], executor=executor, **GIVEN, **options) as node:
        result = (await (await node.start("asking")).wait(timeout=60)).raise_for_status()
    found: list[str] = result.outputs["ask"]
    return found


@pytest.mark.parametrize("executor", ["in_process", "subprocess"])
async def test_a_package_without_capabilities_gets_nothing_and_learns_the_line(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-1: it reads no secret that another package declares; the error names what to write."""
    without_child_processes(monkeypatch)
    folder = package(tmp_path / "shop", ASKING, manifest='capabilities = ["secret:shop_key"]\n')
    assert await answers(folder, executor) == [
        f"capability_missing: package 'shop' may not {what}: "
        f'write capabilities = ["secret:shop_key", "{needed}"] in [package] of its package.toml'
        for what, needed in [
            ("read secret 'bank_token'", "secret:bank_token"),
            ("read variable 'region'", "variable:region"),
            ("push to accumulator 'numbers'", "push:numbers"),
            ("start workflow 'called'", "start:called"),
        ]
    ]


@pytest.mark.parametrize("capabilities", [ALL, '["secret:bank_*", "variable:*", "push:*", "start:calle*"]'])
async def test_a_package_gets_what_its_manifest_names(
    capabilities: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-1."""
    without_child_processes(monkeypatch)
    folder = package(tmp_path / "shop", ASKING, manifest=f"capabilities = {capabilities}\n")
    assert await answers(folder) == ["hunter22", "eu", "done", "done"]


async def test_a_loose_file_and_a_workflow_of_a_program_are_not_restricted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_child_processes(monkeypatch)
    (tmp_path / "shop.py").write_text(ASKING)
    assert await answers(tmp_path / "shop.py") == ["hunter22", "eu", "done", "done"]


def test_the_order_of_a_remote_attempt_carries_the_capabilities() -> None:
    """P-1: any server may answer the calls of the attempt, even one that has never loaded the package."""
    request = AttemptRequest(
        key=AttemptKey("r1", "ask", -1, 1),
        tenant="public",
        workflow="asking",
        version="v1",
        executor="kubernetes",
        number=1,
        deferrals=0,
        params=b"",
        inputs={},
        grants=Grants("shop", ("secret:a",)),
    )
    code = InstalledCode(module="shop", file="shop.py", path=())
    order = Order(request=request, code=code, lease=90.0, heartbeat_interval=15.0)
    grants = decode_order(order.encode()).request.grants
    assert grants is not None
    grants.check(SecretCall("a"))
    for call in [SecretCall("b"), VariableCall("a"), PushCall("a", 1), StartCall("a", {}, 1)]:
        with pytest.raises(RequestError, match="package 'shop' may not"):
            grants.check(call)
