"""Sources of streams: `@tm.stream(tm.sources.WebSocket("wss://feed.example/prices"))`.

Every source here is written against the interface that is open to all: an object with `start(checkpoint)`. A name
imports its module on first use, and a module imports the client of its broker or database when it connects.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.sources.folder import Folder
    from tidemill.sources.interface import Disconnected, Moved, SourceContext
    from tidemill.sources.mqtt import Mqtt
    from tidemill.sources.postgres import Postgres
    from tidemill.sources.redis import Redis
    from tidemill.sources.server_sent_events import ServerSentEvents
    from tidemill.sources.tail import Tail
    from tidemill.sources.websocket import WebSocket

__all__ = [
    "Disconnected",
    "Folder",
    "Moved",
    "Mqtt",
    "Postgres",
    "Redis",
    "ServerSentEvents",
    "SourceContext",
    "Tail",
    "WebSocket",
]

_MODULE_OF_NAME = {
    "Disconnected": "tidemill.sources.interface",
    "Folder": "tidemill.sources.folder",
    "Moved": "tidemill.sources.interface",
    "Mqtt": "tidemill.sources.mqtt",
    "Postgres": "tidemill.sources.postgres",
    "Redis": "tidemill.sources.redis",
    "ServerSentEvents": "tidemill.sources.server_sent_events",
    "SourceContext": "tidemill.sources.interface",
    "Tail": "tidemill.sources.tail",
    "WebSocket": "tidemill.sources.websocket",
}
"""The module of each public name; the imports above tell type checkers the same."""


if not TYPE_CHECKING:  # a checker finds a misspelt name

    def __getattr__(name: str) -> Any:
        """Import a name from its module on first use."""
        if name not in _MODULE_OF_NAME:
            raise AttributeError(f"module 'tidemill.sources' has no attribute '{name}'")
        value = globals()[name] = getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
        return value


def __dir__() -> list[str]:
    """Return every public name, imported or not."""
    return sorted({*globals(), *__all__})
