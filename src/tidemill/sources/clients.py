"""Clients of brokers and databases: their libraries, imported on use, and the addresses of their servers."""

import importlib
from types import ModuleType
from urllib.parse import urlsplit

from tidemill.kernel.author_errors import Fail
from tidemill.sources.interface import SourceContext


def import_client(module: str, *, extra: str) -> ModuleType:
    """Import a client library, or raise Fail with the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Fail(f"the source needs its client: pip install 'tidemill[{extra}]' ({error})") from error


def resolve_url(system: str, declared: str | None, context: SourceContext) -> str:
    """Return the declared address of a server, or that of the setting; Fail if there is none."""
    setting = f"{system}_url"
    url: str | None = declared or getattr(context.settings, setting)
    if url is None:
        raise Fail(
            f"accumulator '{context.name}' has no address of a server; pass url= to its source, "
            f"or set {setting} (TIDEMILL_{setting.upper()})"
        )
    return url


def server_name(url: str) -> str:
    """Return the host and port of an address, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2] or "localhost"
