"""The system: build, leader, store, retention, settings, and the metrics that a page plots."""

import platform
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemill.access.principal import Permission, Principal, Role
from tidemill.api.operation import GET, Message, operation
from tidemill.api.services import Services
from tidemill.kernel.settings import Settings
from tidemill.kernel.urls import mask_password
from tidemill.kernel.version import VERSION
from tidemill.storage.store_size import StoreKind
from tidemill.telemetry.process_usage import ProcessUsage, read_process_usage

if TYPE_CHECKING:
    from tidemill.engine.workflows.client.nodes import Leader
    from tidemill.storage.store import Store


class ServerInfo(Message, frozen=True, kw_only=True):
    """The version of the server, and of its API."""

    version: str
    api: str = "v1"


class Identity(Message, frozen=True, kw_only=True):
    """The principal of a request: who makes it, for which tenant, and what they may do."""

    actor: str
    tenant: str
    role: Role
    is_instance_admin: bool
    may_upload: bool
    """Whether it may upload packages."""
    only: list[str] | None
    """The endpoints that its key is restricted to."""


class LeaderInfo(Message, frozen=True, kw_only=True):
    """The node that plans runs."""

    id: str
    name: str
    epoch: int
    """Grows with each change of leader."""
    is_this_node: bool

    @classmethod
    def of_leader(cls, leader: "Leader | None") -> "LeaderInfo | None":
        """Return the message about a leader."""
        if leader is None:
            return None
        lease, name, is_this_node = leader
        return cls(id=lease.holder, name=name, epoch=lease.epoch, is_this_node=is_this_node)


class RetentionInfo(Message, frozen=True, kw_only=True):
    """How long data is kept, in seconds, and when the leader last deleted old runs."""

    runs: float
    """Of runs that have ended, for this tenant."""
    audit: float
    last_pass_at: datetime | None
    """Null unless the server that answers leads, and has made a pass."""
    last_pass_deleted: int | None

    @classmethod
    def of_services(cls, services: Services, tenant: str) -> "RetentionInfo":
        """Return the message about the retention of a tenant."""
        settings, last = services.settings, services.workflows.nodes.last_prune()
        return cls(
            runs=settings.tenant_retention.get(tenant, settings.retention),
            audit=settings.audit_retention,
            last_pass_at=None if last is None else last.at,
            last_pass_deleted=None if last is None else last.deleted,
        )


class TableRows(Message, frozen=True, kw_only=True):
    """How many rows of one kind the store has."""

    what: str
    number: int
    exact: bool
    """Whether this is neither an estimate nor a limit up to which rows are counted."""


class StoreInfo(Message, frozen=True, kw_only=True):
    """The store of the instance."""

    kind: StoreKind
    title: str
    schema_version: int
    bytes: int | None
    """Null for a store in memory."""
    rows: list[TableRows]

    @classmethod
    async def read(cls, store: "Store") -> "StoreInfo":
        """Return the message about a store with its size."""
        size, schema = await store.read_size(), await store.read_schema_state()
        return cls(
            kind=store.kind,
            title=store.title,
            schema_version=schema.found,
            bytes=size.size,
            rows=[TableRows(what=what, number=one.number, exact=one.is_exact) for what, one in size.rows.items()],
        )


class SettingInfo(Message, frozen=True, kw_only=True):
    """A setting of the server; passwords and keys are masked."""

    name: str
    value: Any
    is_default: bool


def _list_settings(settings: Settings) -> list[SettingInfo]:
    """Return the settings as they are safe to show."""
    defaults = Settings()
    return [
        SettingInfo(
            name=name,
            value=mask_password(value) if isinstance(value, str) else value,
            is_default=getattr(settings, name) == getattr(defaults, name),
        )
        for name, value in settings.__rich_repr__()
    ]


class InstanceInfo(Message, frozen=True, kw_only=True):
    """What only an admin of the instance sees."""

    store: StoreInfo
    settings: list[SettingInfo]
    process: ProcessUsage


class SystemInfo(Message, frozen=True, kw_only=True):
    """The server that answers, and the instance that it belongs to."""

    version: str
    python: str
    node: str
    """The id of the node."""
    started_at: datetime
    leader: LeaderInfo | None
    retention: RetentionInfo
    instance: InstanceInfo | None
    """Null unless an admin of the instance asks."""


class MetricValues(Message, frozen=True, kw_only=True):
    """Metrics at one moment."""

    at: datetime
    values: dict[str, float]
    """By name, summed over labels; percentiles are the largest of all."""


@operation(GET("/system"), Permission.READ)
async def get_system(services: Services, caller: Principal) -> SystemInfo:
    """Return build, leader and retention; an admin of the instance gets store, settings and process too."""
    owner = services.owner
    return SystemInfo(
        version=VERSION,
        python=platform.python_version(),
        node=owner.id,
        started_at=owner.at,
        leader=LeaderInfo.of_leader(await services.workflows.nodes.leader()),
        retention=RetentionInfo.of_services(services, caller.tenant),
        instance=await _read_instance(services) if caller.is_instance_admin else None,
    )


async def _read_instance(services: Services) -> InstanceInfo:
    return InstanceInfo(
        store=await StoreInfo.read(services.store),
        settings=_list_settings(services.settings),
        process=read_process_usage(),
    )


@operation(GET("/system/metrics"), Permission.READ)
async def get_system_metrics(services: Services, caller: Principal) -> MetricValues:
    """Return the metrics of this server as plain numbers; an admin of the instance sees those of all tenants."""
    metrics = services.metrics
    samples = metrics.samples(None if caller.is_instance_admin else caller.tenant)
    return MetricValues(at=services.catalog.now(), values=metrics.by_name(samples))
