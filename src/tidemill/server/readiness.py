"""Readiness: whether the server should get requests, and which part of it is not well, and why.

A load balancer takes a server that is not ready out of service. So only what makes the server useless for everyone is
essential: a store that does not answer or takes no writes, the start of the server until all packages have been tried,
and its end. A package that fails, or a reactor, concerns one tenant: it is reported, and the server stays in service.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Literal

import msgspec

from tidemill.api.errors import detail_of
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.graphs.health import ReactorHealth
from tidemill.kernel.errors import OperationError
from tidemill.node import Node

logger = logging.getLogger(__name__)

STORE_DEADLINE = 2.0
"""Seconds within which the store must answer."""
LEASE_SLACK = timedelta(seconds=5)
"""How long ago a lease may have expired before its holder counts as gone: the clocks of hosts differ."""


class ReadinessCheck(msgspec.Struct, frozen=True):
    """One part of the server: whether it is well, and if not, why."""

    name: str
    ok: bool
    essential: bool
    reason: str = ""


class Readiness(msgspec.Struct, frozen=True):
    """Whether the server should get requests."""

    status: Literal["ready", "not_ready"]
    checks: list[ReadinessCheck]


async def check_readiness(node: Node) -> Readiness:
    """Check every part of a server, all at the same time."""
    async with asyncio.TaskGroup() as group:
        checking = [
            group.create_task(_check(name, find_problem, node, essential=name in ESSENTIAL), name=f"readiness: {name}")
            for name, find_problem in CHECKS.items()
        ]
    checks = [one.result() for one in checking]
    is_ready = all(one.ok for one in checks if one.essential)
    return Readiness("ready" if is_ready else "not_ready", checks)


async def _check(name: str, find_problem: "FindProblem", node: Node, *, essential: bool) -> ReadinessCheck:
    try:
        async with asyncio.timeout(STORE_DEADLINE):  # real time: that of the store
            reason = await find_problem(node)
    except TimeoutError:
        reason = f"the store has not answered within {STORE_DEADLINE:g} s"
    except OperationError as error:
        logger.warning("the check of '%s' failed: %s", name, error)
        reason = detail_of(error)
    return ReadinessCheck(name, not reason, essential, reason)


async def _check_node(node: Node) -> str:
    return "" if node.is_running else "the node is shutting down"


async def _check_store(node: Node) -> str:
    await node.store.leases.current(LEASE_NAME)
    await node.store.check_writable()
    return ""


async def _check_schema(node: Node) -> str:
    found, known = await node.store.read_schema_state()
    return "" if found == known else f"the store has schema version {found}, and this server needs version {known}"


async def _check_leader(node: Node) -> str:
    renewal = await node.store.leases.last_renewal(LEASE_NAME)
    if renewal is None:
        return "no node leads: no run is planned"
    overdue = node.event_feed.clock.now() - renewal.until
    return "" if overdue < LEASE_SLACK else f"the leader has been silent for {overdue.total_seconds():.0f} s"


async def _check_first_load(node: Node) -> str:
    return node.find_unsettled_packages()


async def _check_packages(node: Node) -> str:
    if node.count_unreadable_package_sources():
        return "it cannot be read which are wanted: see the log"
    failed = sum(one.state == "failed" for one in node.packages())
    return f"{failed} could not be loaded or removed: see GET /api/v1/packages" if failed else ""


async def _check_reactors(node: Node) -> str:
    failed = node.count_reactors(ReactorHealth.FAILED)
    return f"{failed} failed, and must be restarted by an operator: see GET /api/v1/reactors" if failed else ""


FindProblem = Callable[[Node], Awaitable[str]]
"""Returns what is wrong with a part of a server; an empty text if it is well."""

CHECKS: dict[str, FindProblem] = {
    "node": _check_node,
    "store": _check_store,
    "schema": _check_schema,
    "leader": _check_leader,
    "first_load": _check_first_load,
    "packages": _check_packages,
    "reactors": _check_reactors,
}
ESSENTIAL = frozenset(["node", "store", "schema", "first_load"])
