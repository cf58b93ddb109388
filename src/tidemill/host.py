"""The host: runs partitions of keyed reactors, which it shares with the other nodes of its store, and nothing else."""

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.limits import WORD_RULE, is_word
from tidemill.kernel.settings import Settings
from tidemill.node import Node
from tidemill.node_arguments import NodeProfile

HOST_DEFAULTS = {"load_published": True}
"""Settings of a host unless they are set."""


class HostNode(Node):
    """Hosts partitions of the keyed reactors that are published in its store, or that it is given.

    It does not plan runs, run tasks, poll triggers or run reactors without a key. Runs that firings of its partitions
    start are planned by other nodes. When it closes, its partitions move to other nodes.
    """

    def __init__(
        self,
        store: str,
        *,
        load: Iterable[Any] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        if name is not None and not is_word(name):
            raise DefinitionError.single("host", f"a host has a name, {WORD_RULE}, not {name!r}")
        profile = NodeProfile(kind="host", name=name, make_executors=lambda _context: {})  # it runs no attempts
        super().__init__(store, load=load, settings=Settings.read(settings, file=HOST_DEFAULTS), _profile=profile)

    @property
    def name(self) -> str:
        """The name under which the store lists it."""
        return self._owner.name
