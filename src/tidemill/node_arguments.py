"""Checks the arguments of a node and of its methods."""

from collections.abc import Mapping

from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.limits import MAX_INTEGER, WORD_RULE, is_word


def check_count(name: str, value: int) -> int:
    """Return a number of something that there must be one of at least; DefinitionError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_INTEGER:
        raise DefinitionError.single("node", f"{name} is a whole number from 1 to {MAX_INTEGER}, not {value!r}")
    return value


def check_pools(pools: Mapping[str, int] | None) -> dict[str, int]:
    """Return the slots of pools by name; DefinitionError if they are not words and numbers."""
    if not isinstance(pools, Mapping | None):
        raise DefinitionError.single("node", f"pools= takes slots by pool, such as {{'warehouse': 2}}, not {pools!r}")
    for name in pools or ():
        if not is_word(name):
            raise DefinitionError.single("node", f"a pool has a name, {WORD_RULE}, not {name!r}")
    return {name: check_count(f"pool '{name}'", slots) for name, slots in (pools or {}).items()}
