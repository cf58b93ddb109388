"""Launches attempts on a Ray cluster: one named actor per attempt, which runs `tidemill attempt` as a process.

Actors are detached: the cluster owns them, not the node. So they survive its death, and another node finds them by
their names. An actor is never restarted by Ray: retries are Tidemill's.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidemill.engine.ray.gateway_client import ActorObserver, RayGateway
from tidemill.engine.ray.protocol import ProcessStatus
from tidemill.engine.workflows.executors.remote.interface import (
    ATTEMPT_COMMAND,
    AttemptLauncher,
    ClusterUnavailableError,
    Launch,
    StartTimeouts,
    UnitCause,
    UnitObserver,
    UnitStatus,
)
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import Settings
from tidemill.workflows.cluster_options import RAY_EXECUTOR
from tidemill.workflows.records import AttemptKey

VANISHED = "the cluster no longer has its actor"


RAY_NAMES = {"cpu": "num_cpus", "memory": "memory", "gpu": "num_gpus"}
"""Resources that Ray has an option for; it calls all others custom resources."""

DEFAULT_CPUS = 1
"""The cores of a task that asks for none: Ray would reserve none, and start any number of them at once."""


def build_actor_options(resources: Mapping[str, Any], runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an actor for the resources of a task: cores, bytes, GPUs, and custom resources."""
    options: dict[str, Any] = {"num_cpus": DEFAULT_CPUS}
    options |= {RAY_NAMES[name]: quantity for name, quantity in resources.items() if name in RAY_NAMES}
    if custom := {name: quantity for name, quantity in resources.items() if name not in RAY_NAMES}:
        options["resources"] = custom
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    return options


def build_prefix(instance: str) -> str:
    """Return how the names of all attempts of an instance begin."""
    return f"tidemill/{instance}/attempt/"


def build_name(prefix: str, key: AttemptKey) -> str:
    """Return the name of an attempt's actor."""
    return f"{prefix}{key.run}/{key.task}/{key.element}/{key.attempt}"


def parse_name(prefix: str, name: str) -> AttemptKey | None:
    """Return the attempt that an actor runs; None if it is not the name of one."""
    parts = name.removeprefix(prefix).rsplit("/", 3)
    if not name.startswith(prefix) or len(parts) != 4:
        return None
    run, task, element, attempt = parts
    try:
        return AttemptKey(run, task, int(element), int(attempt))
    except ValueError:
        return None


class _Unit:
    """An actor of an attempt, as this node knows it."""

    __slots__ = ("key", "status")

    def __init__(self, key: AttemptKey) -> None:
        self.key = key
        self.status = UnitStatus(state="pending")

    @property
    def is_active(self) -> bool:
        return not self.status.is_over


class RayLauncher(AttemptLauncher, ActorObserver):
    """The units of one Ray cluster."""

    name = RAY_EXECUTOR

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        namespace: str,
        runtime_env: Mapping[str, Any],
        max_attempts: int,
        pending_timeout: float,
    ) -> None:
        self._runtime_env = runtime_env
        self._max_attempts = max_attempts
        self.start_timeouts = StartTimeouts(pending=pending_timeout)
        self._gateway = RayGateway(address, namespace, clock, self)
        self._prefix = ""
        self._session: str | None = None
        self._lists = 0
        """The number of lists in this connection. The statuses of the units in the first one follow it."""
        self._units: dict[str, _Unit] = {}
        """By the name of the actor. An ended unit stays until it is discarded."""
        self._unconfirmed: set[str] = set()
        """The units from before this connection: those that its first list does not show have vanished."""
        self._observer: UnitObserver

    async def open(self, observer: UnitObserver, instance: str) -> None:
        """Begin to connect to the cluster, and to observe the units of an instance."""
        self._observer = observer
        self._prefix = build_prefix(instance)
        await self._gateway.open(self._prefix)

    async def close(self) -> None:
        """Disconnect from the cluster. The units live on."""
        await self._gateway.close()

    def free_slots(self) -> int:
        """Return how many more units it can start: none without a connection."""
        active = sum(unit.is_active for unit in self._units.values())
        return max(self._max_attempts - active, 0) if self._gateway.is_connected else 0

    def is_watching(self, tenant: str) -> bool:  # noqa: ARG002
        """Return whether it sees all units as they are: it is connected, and knows the status of each."""
        return self._gateway.is_connected and self._lists > 1

    async def launch(self, launch: Launch) -> None:
        """Start the actor of an attempt, and its process with it."""
        name = build_name(self._prefix, launch.key)
        if name in self._units:
            return
        arguments = ["-m", *ATTEMPT_COMMAND]
        options = build_actor_options(launch.resources, self._runtime_env)
        unit = self._remember(name, launch.key)
        try:
            problem = await self._gateway.create(name, arguments, launch.full_environment(), options)
        except OperationError as error:
            self._units.pop(name, None)
            raise ClusterUnavailableError(str(error)) from error
        if problem:
            self._report(unit, UnitStatus(state="ended", cause="refused", reason=f"Ray refuses the actor: {problem}"))

    async def delete(self, key: AttemptKey, grace: float) -> None:
        """Stop the process of an attempt, and remove its actor."""
        self._gateway.stop(build_name(self._prefix, key), grace)

    async def discard(self, key: AttemptKey) -> None:
        """Remove the actor of an attempt that has ended, or is about to. One that cannot be reached removes itself."""
        name = build_name(self._prefix, key)
        self._units.pop(name, None)
        with suppress(OperationError):
            self._gateway.remove(name)

    # -- what the gateway sees

    def on_connected(self, session: str) -> None:
        """Compare the cluster with the last one: a new one says nothing about the attempts of the old one.

        Nodes of the old cluster may still run them: they continue while their leases are renewed. But an attempt that
        had not started no longer will.
        """
        if self._session not in (None, session):
            for name, unit in tuple(self._units.items()):
                if unit.status.state == "pending":
                    self._report(unit, UnitStatus(state="missing", reason="the cluster was replaced by another one"))
                else:
                    del self._units[name]
                    self._observer.on_removed(unit.key)
        self._session, self._lists = session, 0
        self._unconfirmed = set(self._units)

    def on_listed(self, names: Sequence[str]) -> None:
        """Report units that vanished while there was no connection."""
        self._lists += 1
        for name in self._unconfirmed.difference(names):
            if (unit := self._units.get(name)) is not None:
                self._report(unit, UnitStatus(state="missing", reason=VANISHED))
        self._unconfirmed.clear()
        self._forget_removed(names)

    def on_status(self, name: str, status: ProcessStatus) -> None:
        """Report the status of a unit."""
        key = parse_name(self._prefix, name)
        if key is not None:
            self._report(self._remember(name, key), _convert(status))

    def _remember(self, name: str, key: AttemptKey) -> _Unit:
        return self._units.setdefault(name, _Unit(key))

    def _report(self, unit: _Unit, status: UnitStatus) -> None:
        """Report a status, unless the unit is further already: a new gateway calls every unit pending at first."""
        if unit.status.is_over or (unit.status.state, status.state) == ("running", "pending"):
            return
        unit.status = status
        self._observer.on_unit(unit.key, status)

    def _forget_removed(self, names: Sequence[str]) -> None:
        """Forget units that have ended and whose actors are gone: every node sees those of all nodes."""
        gone = {name for name, unit in self._units.items() if not unit.is_active}.difference(names)
        for name in gone:
            self._observer.on_removed(self._units.pop(name).key)


def _convert(status: ProcessStatus) -> UnitStatus:
    cause: UnitCause | None = status.cause
    return UnitStatus(state=status.state, cause=cause, reason=status.reason, exit=status.exit, log_tail=status.log_tail)


def make_launcher(settings: Settings, clock: Clock) -> RayLauncher:
    """Return the launcher for the cluster of the settings."""
    assert settings.ray_address is not None
    return RayLauncher(
        settings.ray_address,
        clock,
        namespace=settings.ray_namespace,
        runtime_env=settings.ray_runtime_env,
        max_attempts=settings.ray_max_attempts,
        pending_timeout=settings.ray_pending_timeout,
    )
