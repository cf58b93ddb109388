"""Clients of brokers and databases: their libraries, imported on use, their addresses, and their errors."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from urllib.parse import urlsplit

from tidemill.kernel.author_errors import Fail
from tidemill.sources.interface import Disconnected, SourceContext


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


@contextmanager
def explaining_errors(
    title: str, *errors: type[Exception], find_remedy: Callable[[Exception], str | None] = lambda _: None
) -> Iterator[None]:
    """Turn errors of a connection, and these of its client, into Disconnected, or Fail where a retry cannot help.

    `find_remedy` returns what to do about an error for which a retry cannot help, "" if the error says it, and None for
    any other error.
    """
    lost: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except TimeoutError as error:
        raise Disconnected(f"{title}: no answer in time") from error
    except lost as error:
        reason = f"{title}: {str(error) or type(error).__name__}"
        if (remedy := find_remedy(error)) is None:
            raise Disconnected(reason) from error
        raise Fail(f"{reason}; {remedy}" if remedy else reason) from error
