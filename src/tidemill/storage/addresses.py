"""The store at an address; its driver is imported when one is asked for."""

import importlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tidemill.kernel.errors import OperationError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.kernel.urls import mask_password
from tidemill.storage.store import Store

STORE_SCHEMES = ("sqlite", "postgresql", "postgres")


def make_store(address: str, now: Callable[[], datetime] | None = None) -> Store:
    """Return the store at an address, not opened yet; its driver is imported here.

    Leases expire by `now` if it is given, and otherwise by the store's own clock.
    """
    scheme, _, rest = str(address).partition("://")
    if scheme == "sqlite" and rest.removeprefix("/"):
        return _import_store_class("sqlite.store", "SqliteStore")(rest.removeprefix("/"), now=now)
    if scheme in ("postgresql", "postgres") and rest:
        return _import_store_class("postgres.store", "PostgresStore")(f"postgresql://{rest}", now=now)
    is_known = scheme in STORE_SCHEMES or not rest
    unknown = "" if is_known else f"there is no store '{scheme}'{did_you_mean(scheme, STORE_SCHEMES)}; "
    raise OperationError(
        f"store {mask_password(str(address))!r}: {unknown}an address looks like 'sqlite:///tidemill.db' (SQLite) "
        "or 'postgresql://user@host:5432/database' (PostgreSQL); leave it out to keep everything in memory"
    )


def make_memory_store(now: Callable[[], datetime], *database: Any) -> Store:
    """Return a store that ends with its object; with a memory database, one that shares its rows."""
    return _import_store_class("sqlite.memory", "MemoryStore")(now, *database)


def with_absolute_path(address: str) -> str:
    """Return an address that names the same file even if author code changes the working directory."""
    scheme, _, rest = str(address).partition("://")
    return f"sqlite:///{Path(rest.removeprefix('/')).absolute()}" if scheme == "sqlite" else address


def _import_store_class(module: str, name: str) -> Callable[..., Store]:
    """Import a store and its driver; raise OperationError if the driver is not installed."""
    try:
        kind: Callable[..., Store] = getattr(importlib.import_module(f"tidemill.storage.{module}"), name)
    except ImportError as error:
        folder = module.partition(".")[0]
        raise OperationError(f"{folder} needs its driver: pip install 'tidemill[{folder}]' ({error})") from error
    return kind
