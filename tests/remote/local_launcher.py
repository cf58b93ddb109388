"""A cluster of local processes: each unit is a `tidemill attempt` of this machine, described by a file in a folder.

The processes outlive the node that starts them, as pods do. Another launcher on the same folder finds them.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.remote.interface import (
    AttemptLauncher,
    Launch,
    UnitCause,
    UnitObserver,
    UnitStatus,
)
from tidemill.kernel.errors import OperationError
from tidemill.workflows.cluster_options import KUBERNETES_EXECUTOR
from tidemill.workflows.records import AttemptKey

POLL_INTERVAL = 0.01


class LocalLauncher(AttemptLauncher):
    """Starts units as processes of this machine."""

    def __init__(self, folder: Path, name: str = KUBERNETES_EXECUTOR, limit: int = 8) -> None:
        self.name = name
        self.launches: list[Launch] = []
        """Every launch that was asked for, in order."""
        self.refusal: str | None = None
        """Why the cluster takes no unit at the moment."""
        self.causes: dict[AttemptKey, UnitCause] = {}
        """What the cluster says about the end of a unit, if it says something."""
        self.pending: asyncio.Event | None = None
        """Units stay pending until it is set; None: they start at once."""
        self._folder = folder
        self._limit = limit
        self._processes: dict[AttemptKey, subprocess.Popen[bytes]] = {}
        self._known: dict[AttemptKey, UnitStatus] = {}
        self._tasks = TaskScope()

    async def open(self, observer: UnitObserver, instance: str) -> None:
        self._observer = observer
        self._units = self._folder / instance
        self._units.mkdir(parents=True, exist_ok=True)
        await self._tasks.open()
        self._tasks.start("observe units", self._observe())

    async def close(self) -> None:
        await self._tasks.close(1.0)

    def free_slots(self) -> int:
        return self._limit - sum(not status.is_over for status in self._known.values())

    async def launch(self, launch: Launch) -> None:
        self.launches.append(launch)
        if self.refusal is not None:
            raise OperationError(self.refusal)
        path = self._path(launch.key)
        if path.exists():
            return
        path.write_text(json.dumps({"key": launch.key, "pid": 0}), encoding="utf-8")
        self._report(launch.key, UnitStatus(state="pending"))
        if self.pending is not None:
            self._tasks.start("start later", self._start_later(launch))
        else:
            self._start(launch)

    async def _start_later(self, launch: Launch) -> None:
        assert self.pending is not None
        await self.pending.wait()
        self._start(launch)

    def _start(self, launch: Launch) -> None:
        path = self._path(launch.key)
        with open(path.with_suffix(".out"), "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tidemill", "attempt"],
                env=os.environ | launch.full_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        path.write_text(json.dumps({"key": launch.key, "pid": process.pid}), encoding="utf-8")
        self._processes[launch.key] = process
        self._report(launch.key, UnitStatus(state="running"))

    async def delete(self, key: AttemptKey, grace: float) -> None:
        pid = self.pid(key)
        if pid and (status := self._known.get(key)) is not None and not status.is_over:
            os.kill(pid, signal.SIGTERM)
            self._tasks.start("kill later", self._kill_later(key, grace))

    async def _kill_later(self, key: AttemptKey, grace: float) -> None:
        await asyncio.sleep(grace)
        status = self._known.get(key)
        if status is not None and not status.is_over:
            os.kill(self.pid(key), signal.SIGKILL)

    async def discard(self, key: AttemptKey) -> None:
        if (status := self._known.get(key)) is None or status.is_over:
            self._path(key).unlink(missing_ok=True)
            self._known.pop(key, None)

    def pid(self, key: AttemptKey) -> int:
        """Return the process of a unit; 0 if there is none."""
        try:
            return int(json.loads(self._path(key).read_text(encoding="utf-8"))["pid"])
        except FileNotFoundError:
            return 0

    def process(self, key: AttemptKey) -> "subprocess.Popen[bytes]":
        """Return the process of a unit that this launcher has started."""
        return self._processes[key]

    def output(self, key: AttemptKey) -> str:
        """Return what a unit has printed."""
        return self._path(key).with_suffix(".out").read_text(encoding="utf-8")

    def kill(self, key: AttemptKey, cause: UnitCause | None = None) -> None:
        """Kill a unit as the cluster would, for a reason that it shows."""
        if cause is not None:
            self.causes[key] = cause
        os.kill(self.pid(key), signal.SIGKILL)

    def end(self) -> None:
        """Kill every unit that this launcher has started, and wait for it."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    # -- observing

    async def _observe(self) -> None:
        while True:
            for path in self._units.glob("*.unit"):
                self._look_at(path)
            await asyncio.sleep(POLL_INTERVAL)

    def _look_at(self, path: Path) -> None:
        try:
            unit = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return  # removed, or being written
        key = AttemptKey(*unit["key"])
        if unit["pid"] and not self._known.get(key, UnitStatus(state="pending")).is_over:
            self._report(key, self._status(key, unit["pid"]))

    def _status(self, key: AttemptKey, pid: int) -> UnitStatus:
        process = self._processes.get(key)
        if process is None:
            return UnitStatus(state="running") if is_alive(pid) else UnitStatus(state="missing")
        if (code := process.poll()) is None:
            return UnitStatus(state="running")
        cause = self.causes.get(key, "completed" if code == 0 else "error")
        return UnitStatus(state="ended", cause=cause, exit=code, log_tail=self.output(key)[-1000:])

    def _report(self, key: AttemptKey, status: UnitStatus) -> None:
        if self._known.get(key) != status:
            self._known[key] = status
            self._observer.on_unit(key, status)

    def _path(self, key: AttemptKey) -> Path:
        return self._units / f"{quote(str(key), safe='')}.unit"


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
