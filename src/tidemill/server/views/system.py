"""The system as the API shows it: build, leader, store, retention, settings and process."""

from datetime import datetime
from typing import Any

import msgspec

from tidemill.kernel.settings import Settings
from tidemill.kernel.urls import mask_password
from tidemill.server.process_usage import ProcessUsage
from tidemill.storage.store import Store
from tidemill.storage.store_size import StoreKind


class LeaderView(msgspec.Struct, frozen=True, kw_only=True):
    """The node that plans runs."""

    id: str
    name: str
    epoch: int
    """Grows with each change of leader."""
    is_this_node: bool


class RetentionView(msgspec.Struct, frozen=True, kw_only=True):
    """How long data is kept, in seconds, and when the leader last deleted old runs."""

    runs: float
    """Of runs that have ended, for this tenant."""
    audit: float
    last_pass_at: datetime | None
    """Null unless the server that answers leads, and has made a pass."""
    last_pass_deleted: int | None


class TableRows(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of one kind the store has."""

    what: str
    number: int
    exact: bool
    """Whether this is neither an estimate nor a limit up to which rows are counted."""


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """The store of the instance."""

    kind: StoreKind
    title: str
    schema_version: int
    bytes: int | None
    """Null for a store in memory."""
    rows: list[TableRows]


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the server; passwords and keys are masked."""

    name: str
    value: Any
    is_default: bool


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """What only an admin of the instance sees."""

    store: StoreView
    settings: list[SettingView]
    process: ProcessUsage


class SystemView(msgspec.Struct, frozen=True, kw_only=True):
    """The server that answers, and the instance that it belongs to."""

    version: str
    python: str
    node: str
    """The id of the node."""
    started_at: datetime
    leader: LeaderView | None
    retention: RetentionView
    instance: InstanceView | None
    """Null unless an admin of the instance asks."""


class MetricValues(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics at one moment."""

    at: datetime
    values: dict[str, float]
    """By name, summed over labels; percentiles are the largest of all."""


async def read_store(store: Store) -> StoreView:
    """Return the store with its size."""
    size, schema = await store.read_size(), await store.read_schema_state()
    return StoreView(
        kind=store.kind,
        title=store.title,
        schema_version=schema.found,
        bytes=size.size,
        rows=[TableRows(what=what, number=one.number, exact=one.is_exact) for what, one in size.rows.items()],
    )


def list_settings(settings: Settings) -> list[SettingView]:
    """Return the settings as they are safe to show."""
    defaults = Settings()
    return [
        SettingView(
            name=name,
            value=mask_password(value) if isinstance(value, str) else value,
            is_default=getattr(settings, name) == getattr(defaults, name),
        )
        for name, value in settings.__rich_repr__()
    ]
