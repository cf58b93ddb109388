"""Runs one attempt from its order to its report.

Three things go on at the same time: the code runs in a child process, heartbeats renew the lease, and the log is sent.
The attempt ends with the code, with a heartbeat that says that it is no longer wanted, with the lease, or with a
signal. Whichever is first stops the others.
"""

import asyncio
import importlib.util
import logging
import sys
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from tidemill.attempt.connection import (
    CALL_TIMEOUT,
    HEARTBEAT_TIMEOUT,
    LeaseLostError,
    NotWantedError,
    ServerConnection,
)
from tidemill.attempt.logs import LogSender
from tidemill.attempt.process import AttemptProcess, OomWatch
from tidemill.engine.workflows.executors.code import CodeLocation
from tidemill.engine.workflows.executors.forkserver.protocol import CALL_REPLY_DECODER, ResultMessage
from tidemill.engine.workflows.executors.interface import STOP_GRACE_PERIOD, AttemptListener, AttemptRequest
from tidemill.engine.workflows.executors.remote.orders import (
    BundledCode,
    InstalledCode,
    Order,
    OrderedCode,
    decode_order,
    unpack_bundle,
)
from tidemill.engine.workflows.executors.remote.unit_results import LEASE_LOST, NOT_WANTED, REPORTED, TERMINATED
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.concurrency import FirstErrorGroup, call_in_thread
from tidemill.kernel.errors import OperationError
from tidemill.kernel.masking import SecretMask
from tidemill.kernel.namespaces import PackageTree
from tidemill.telemetry import events
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult, Cancelled, Failed, Lost
from tidemill.workflows.node_calls import NodeCall, SecretCall
from tidemill.workflows.records import AttemptKey, TaskError

logger = logging.getLogger(__name__)

LAST_LOGS_TIMEOUT = 10.0
"""Seconds to send the rest of the log when the attempt was terminated: a cluster kills it soon."""

Result = TypeVar("Result")


async def prepare_code(code: OrderedCode, connection: ServerConnection, folder: Path) -> CodeLocation:
    """Return where the code is; a bundle is downloaded into a folder, and checked."""
    if isinstance(code, InstalledCode):
        return _locate_installed(code)
    archive = await connection.get("/code")
    await call_in_thread(unpack_bundle, archive, code.digest, folder)
    return _locate_bundle(code, folder)


def _locate_bundle(code: BundledCode, folder: Path) -> CodeLocation:
    tree = PackageTree(str(folder), code.shown, code.tops)
    return CodeLocation(code.modules[0], str(folder), tuple(sys.path), tree, code.modules, code.settings)


def _locate_installed(code: InstalledCode) -> CodeLocation:
    """Return where a module is installed: in the same file as on the node, or wherever Python finds it."""
    path = (*sys.path, *(one for one in code.path if one not in sys.path and Path(one).exists()))
    if Path(code.file).is_file():
        return CodeLocation(code.module, code.file, path)
    try:
        spec = importlib.util.find_spec(code.module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise OperationError(
            f"module '{code.module}' is not installed where the attempt runs, and there is no {code.file}: publish the "
            "code as a package, which is downloaded, or install it in the image"
        )
    return CodeLocation(code.module, spec.origin, path)


class _TerminatedError(Exception):
    """The cluster has terminated the attempt."""


class _Listener(AttemptListener):
    """Receives what the child process reports."""

    def __init__(self, logs: LogSender) -> None:
        self.ended: asyncio.Future[AttemptResult] = asyncio.get_running_loop().create_future()
        self._logs = logs

    async def record_start(self, key: AttemptKey) -> bool:  # noqa: ARG002
        return True

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:  # noqa: ARG002
        self._logs.add(records)

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:  # noqa: ARG002
        if not self.ended.done():
            self.ended.set_result(ending)

    def resume_work(self) -> None:
        return


class Attempt:
    """One attempt, as the server orders it."""

    def __init__(self, connection: ServerConnection, folder: Path, memory_events: Path | None = None) -> None:
        self._memory_events = memory_events
        self._connection = connection
        self._folder = folder
        self._logs = LogSender(connection)
        self._listener = _Listener(self._logs)
        self._mask = SecretMask()
        self._executor: AttemptProcess | None = None
        self._submitted, self._terminated = asyncio.Event(), asyncio.Event()

    def terminate(self) -> None:
        """Stop the code, and report no result: the cluster ends this process, and says why."""
        self._terminated.set()

    async def run(self) -> int:
        """Run the attempt, and return the exit code."""
        try:
            await self._run()
            return REPORTED
        except NotWantedError as error:
            logger.warning(events.ATTEMPT_NOT_WANTED, extra={"reason": str(error)})
            return NOT_WANTED
        except LeaseLostError as error:
            logger.error(events.ATTEMPT_LEASE_LOST, extra={"reason": str(error)})
            return LEASE_LOST
        except _TerminatedError:
            logger.warning(events.ATTEMPT_TERMINATED)
            return TERMINATED

    async def _run(self) -> None:
        await self._run_order(await self._unless_terminated(self._start()))

    async def _unless_terminated(self, work: Awaitable[Result]) -> Result:
        """Return the result of work that needs no orderly end; _TerminatedError if the attempt is terminated before."""
        async with FirstErrorGroup() as group:
            termination = group.start("attempt: early termination", self._raise_when_terminated())
            result = await work
            termination.cancel()
        return result

    async def _raise_when_terminated(self) -> None:
        await self._terminated.wait()
        raise _TerminatedError

    async def _start(self) -> Order:
        lease, sent_at = self._connection.lease, self._connection.lease.now()
        started = await self._connection.post("/start", {"process": uuid4().hex}, dict[str, Any], CALL_TIMEOUT)
        order = decode_order(started["order"])
        lease.renew(sent_at, order.lease)
        return order

    async def _run_order(self, order: Order) -> None:
        async with FirstErrorGroup() as group:
            others = [
                group.start("attempt: heartbeats", self._send_heartbeats(order)),
                group.start("attempt: logs", self._logs.run()),
                group.start("attempt: termination", self._stop_when_terminated(order.request.key)),
            ]
            await self._report(await self._run_code(order))
            for one in others:
                one.cancel()

    async def _send_heartbeats(self, order: Order) -> None:
        """Renew the lease, and with it the right of the child process to run, until cancelled."""
        lease = self._connection.lease
        while True:
            await asyncio.sleep(order.heartbeat_interval)  # real time: as the server counts it
            sent_at = lease.now()
            answer = await self._connection.post("/heartbeat", None, dict[str, float], HEARTBEAT_TIMEOUT)
            lease.renew(sent_at, answer["seconds"])
            if self._executor is not None:
                self._executor.on_leases_renewed()

    async def _stop_when_terminated(self, key: AttemptKey) -> None:
        """Stop the code once the attempt is terminated and its code runs."""
        await self._terminated.wait()
        await self._submitted.wait()
        if self._executor is not None:
            await self._executor.cancel(key, "its unit was terminated")

    async def _run_code(self, order: Order) -> AttemptResult:
        """Return the result of the code; one that cannot be run fails."""
        try:
            location = await self._unless_terminated(prepare_code(order.code, self._connection, self._folder))
            self._executor = executor = AttemptProcess(
                location,
                self._listener,
                SystemClock(),
                handle_call=self._call,
                mask=self._mask,
                lease=max(order.lease - order.heartbeat_interval, order.heartbeat_interval),
            )
            await executor.open()
            oom_watch = OomWatch(self._memory_events)
            try:
                await executor.submit(replace(order.request, has_begun=True, executor=executor.name))
                self._submitted.set()
                return oom_watch.judge(await self._listener.ended)
            finally:
                await asyncio.shield(executor.close(STOP_GRACE_PERIOD))
        except (NotWantedError, LeaseLostError):
            raise
        except OperationError as error:
            return Failed(error=TaskError("NotStarted", str(error)), outcome="not_started")

    async def _call(self, request: AttemptRequest, call: NodeCall) -> Any:  # noqa: ARG002
        """Make a call of the code on the server; a secret in the answer is masked from now on."""
        body = {"call": msgspec.msgpack.encode(call)}
        answer = await self._connection.post("/calls", body, dict[str, bytes], CALL_TIMEOUT)
        value = CALL_REPLY_DECODER.decode(answer["reply"]).unwrap()
        if isinstance(call, SecretCall):
            self._mask.add(value)
        return value

    async def _report(self, result: AttemptResult) -> None:
        """Deliver the result, after the log that belongs to it."""
        if isinstance(result, Lost):
            raise LeaseLostError(result.reason)
        if isinstance(result, Cancelled):
            await self._send_last_logs()
            raise _TerminatedError
        await self._logs.flush()
        await self._send_result(result)

    async def _send_last_logs(self) -> None:
        """Send what the code has logged before it was stopped, as far as a server takes it in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_LOGS_TIMEOUT):  # real time: that of the cluster
                await self._logs.flush()

    async def _send_result(self, result: AttemptResult) -> None:
        """Deliver a result; one that is refused, such as a value that a proxy does not let through, is a failure."""
        try:
            await self._post_result(result)
        except (NotWantedError, LeaseLostError):
            raise
        except OperationError as error:
            message = f"the code has ended, but its result could not be reported: {error}"
            await self._post_result(Failed(error=TaskError("ResultRefused", message)))

    async def _post_result(self, result: AttemptResult) -> None:
        report = {"result": msgspec.msgpack.encode(ResultMessage.from_ending(result))}
        await self._connection.post("/result", report, type(None), CALL_TIMEOUT)
