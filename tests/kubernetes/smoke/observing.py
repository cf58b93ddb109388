"""What tests ask about runs in pods."""

import asyncio

import msgspec

from tests.kubernetes.pods import Pods
from tidemill.api.handles import AsyncRun
from tidemill.node import Node
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.records import AttemptRow, TaskKey

MINUTES = 300.0
"""Seconds for a run: a node of the cluster may have to pull the image first."""
MOMENT = 0.2


async def messages_of(node: Node, run: AsyncRun, task: str) -> list[str]:
    """Return what a task has logged so far."""
    chunks = await node.store.logs.read(TaskKey(run.id, task, -1))
    return [record.message for one in chunks for record in msgspec.msgpack.decode(one.payload, type=list[LogRecord])]


async def only_attempt(node: Node, run: AsyncRun) -> AttemptRow:
    """Return the one attempt that a run has made."""
    (attempt,) = await node.store.runs.read_attempts(run.id)
    return attempt


async def until_logged(node: Node, run: AsyncRun, task: str, message: str) -> None:
    """Wait until a task has logged a message."""
    async with asyncio.timeout(MINUTES):
        while message not in await messages_of(node, run, task):  # noqa: ASYNC110 - the pod logs it
            await asyncio.sleep(MOMENT)


async def until_no_pods(pods: Pods) -> None:
    """Wait until all pods are removed."""
    async with asyncio.timeout(MINUTES):
        while (await pods.select())["items"]:  # noqa: ASYNC110 - the node removes them
            await asyncio.sleep(MOMENT)
