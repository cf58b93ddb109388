"""Keeps hosts alive on a Ray cluster: processes that host partitions of keyed reactors, each held by an actor.

The names of the actors are numbers below the wanted count, so servers that see the same cluster agree on what is
missing, and create each one once. Only the leader of the store acts.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from tidemill.engine.ray.gateway_client import ActorObserver, RayGateway
from tidemill.engine.ray.protocol import ProcessStatus
from tidemill.engine.tasks import TaskScope
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import ENVIRONMENT_PREFIX, Settings
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

HOST_OPTIONS = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
"""The options of an actor that holds a host: one core, and hosts on as many nodes of the cluster as there are."""

STABLE_AFTER = 60.0
"""Seconds after which the death of a host counts as the first one again."""

HOST_ARGUMENTS = ("-m", "tidemill", "host", "--log-format", "json")
"""What the Python of a cluster's node runs."""

STOP_GRACE_SHARE = 4.0
"""How many times of `unload_timeout` a host has to hand its partitions over."""

_OWN_SETTINGS = (
    "edition",
    "load_published",
    "packages",
    "partition_weight",
    "peer_url",
    "server_url",
    "store",
    "tenant_retention",
    "tenant_weights",
    "trusted_keys",
    "unfinished",
)
_OWN_PREFIXES = ("kubernetes_", "ray_", "oidc_")
"""Settings of the server that mean nothing on another machine, or to a host."""


class _Host:
    """One host that is wanted, and how often it has ended early."""

    def __init__(self) -> None:
        self.started_at = 0.0
        self.failures = 0
        self.not_before = 0.0


class RayHosts(ActorObserver):
    """The hosts of one store on one cluster."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        namespace: str,
        count: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        runtime_env: Mapping[str, object],
        stop_grace: float,
        is_leader: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._count = count
        self._arguments = arguments
        self._environment = environment
        self._options = {**HOST_OPTIONS, **({"runtime_env": dict(runtime_env)} if runtime_env else {})}
        self._stop_grace = stop_grace
        self._is_leader = is_leader
        self._gateway = RayGateway(address, namespace, clock, self)
        self._tasks = TaskScope()
        self._backoff = Backoff(1.0, 60.0)
        self._prefix = ""
        self._wanted: dict[str, _Host] = {}
        self._creating: set[str] = set()
        self._stopping: set[str] = set()

    async def open(self, instance: str) -> None:
        """Begin to keep the hosts of an instance alive."""
        self._prefix = f"tidemill/{instance}/host/"
        self._wanted = {f"{self._prefix}{number}": _Host() for number in range(self._count)}
        await self._tasks.open()
        await self._gateway.open(self._prefix)

    async def close(self) -> None:
        """Leave the hosts alone: they live on, and the next leader keeps them."""
        await self._tasks.close()
        await self._gateway.close()

    # -- what the gateway sees

    def on_connected(self, session: str) -> None:  # noqa: ARG002 - any session is welcome
        """Forget what was asked of the last gateway."""
        self._stopping.clear()

    def on_listed(self, names: Sequence[str]) -> None:
        """Start the hosts that are missing, and stop those that are no longer wanted."""
        if not self._is_leader():
            return
        now = self._clock.monotonic()
        for name, host in self._wanted.items():
            if name not in names and name not in self._creating and now >= host.not_before:
                self._creating.add(name)
                self._tasks.start(f"create {name}", self._create(name, host))
        for name in names:
            if name not in self._wanted and name not in self._stopping:
                self._stopping.add(name)
                self._gateway.stop(name, self._stop_grace)

    def on_status(self, name: str, status: ProcessStatus) -> None:
        """Remove a host that has ended, so that its name is free, and delay the next one if it ended early."""
        if not status.is_over:
            return
        if (host := self._wanted.get(name)) is not None:
            now = self._clock.monotonic()
            host.failures = 1 if now - host.started_at > STABLE_AFTER else host.failures + 1
            host.not_before = now + self._backoff.delay(host.failures)
            fields = {"host": name, "reason": status.reason, "exit": status.exit, "output": status.log_tail}
            logger.warning(events.RAY_HOST_ENDED, extra=fields)
        self._stopping.discard(name)
        if self._gateway.is_connected and self._is_leader():  # another node could remove the next host of this name
            self._gateway.remove(name)

    async def _create(self, name: str, host: _Host) -> None:
        host.started_at = self._clock.monotonic()
        try:
            problem = await self._gateway.create(name, self._arguments, self._environment, self._options)
        except OperationError as error:
            problem = str(error)
        finally:
            self._creating.discard(name)
        if problem:
            logger.warning(events.RAY_HOST_REFUSED, extra={"host": name, "reason": problem})
        else:
            logger.info(events.RAY_HOST_STARTED, extra={"host": name})


def make_hosts(settings: Settings, clock: Clock, store: str, is_leader: Callable[[], bool]) -> RayHosts:
    """Return the hosts of settings that name a cluster and a number of hosts."""
    assert settings.ray_address is not None
    assert settings.ray_hosts is not None
    return RayHosts(
        settings.ray_address,
        clock,
        namespace=settings.ray_namespace,
        count=settings.ray_hosts,
        arguments=HOST_ARGUMENTS,
        environment=build_host_environment(settings, store),
        runtime_env=settings.ray_runtime_env,
        stop_grace=STOP_GRACE_SHARE * settings.unload_timeout,
        is_leader=is_leader,
    )


def build_host_environment(settings: Settings, store: str) -> dict[str, str]:
    """Return the variables of a host: the store, and the settings of the server that it shares, unless default."""
    default = Settings()
    shared = {
        name: getattr(settings, name)
        for name in settings.__struct_fields__
        if name not in _OWN_SETTINGS and not name.startswith(_OWN_PREFIXES)
    }
    changed = {name: value for name, value in shared.items() if value != getattr(default, name)}
    variables = {f"{ENVIRONMENT_PREFIX}{name.upper()}": str(value) for name, value in changed.items()}
    return {**variables, f"{ENVIRONMENT_PREFIX}STORE": settings.ray_host_store or store}
