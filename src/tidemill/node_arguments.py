"""Checks the arguments of a node and of its methods."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.limits import MAX_INTEGER, WORD_RULE, is_word
from tidemill.workflows.workflow import Workflow


def check_count(name: str, value: int) -> int:
    """Return a number of something that there must be one of at least; DefinitionError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_INTEGER:
        raise DefinitionError.single("node", f"{name} is a whole number from 1 to {MAX_INTEGER}, not {value!r}")
    return value


def list_loads(load: Any) -> list[Any]:
    """Return what a node is to load as a list; a single thing makes one, too."""
    return [load] if isinstance(load, Reactor | Graph | Workflow | ModuleType | str | Path) else list(load)


def check_pools(pools: Mapping[str, int] | None) -> dict[str, int]:
    """Return the slots of pools by name; DefinitionError if they are not words and numbers."""
    if not isinstance(pools, Mapping | None):
        raise DefinitionError.single("node", f"pools= takes slots by pool, such as {{'warehouse': 2}}, not {pools!r}")
    for name in pools or ():
        if not is_word(name):
            raise DefinitionError.single("node", f"a pool has a name, {WORD_RULE}, not {name!r}")
    return {name: check_count(f"pool '{name}'", slots) for name, slots in (pools or {}).items()}
