"""A reactor whose contract changes in a hot reload starts with an empty cache, with a store as without one."""

from types import ModuleType
from typing import Any, get_args

import pytest

import tidemill as tm
from tidemill.graphs.definition import Durability


def package(**options: Any) -> ModuleType:
    """Return a version of the package; the options are those of the reactor."""

    @tm.passthrough
    def book(event: int) -> int:
        return event

    @tm.passthrough
    def limits(event: int) -> int:
        return event

    seen = tm.window("seen", int, capacity=3)
    sources = [book, seen, *([limits] if options.pop("has_limits", False) else [])]
    market = tm.Reactor("market", sources, **options)
    reader = tm.Graph("reader", reactor=market)

    @reader.node(feeds=seen)
    def out(book: int, seen: list[int] | None) -> int:
        return book

    module = ModuleType("package")
    vars(module).update(market=market, reader=reader)
    return module


DURABLE = [(store, durability) for store in ("memory", "sqlite") for durability in get_args(Durability)]


@pytest.mark.parametrize(("store", "durability"), [(None, None), *DURABLE])
@pytest.mark.parametrize("change", [{"strategy": "sequential"}, {"has_limits": True}, {"when": "all"}])
async def test_a_changed_contract_resets_the_cache(
    sqlite: str, store: str | None, durability: Durability | None, change: dict[str, Any]
) -> None:
    """P-6: reactors keep their cache when the contract is the same, and only then; a crash does not bring it back."""
    address = {None: None, "memory": "memory://", "sqlite": sqlite}[store]
    async with tm.testing.node(address, load=[package(durability=durability)]) as node:
        await node.push("book", 7)
        await node.settle()
        assert node.reactor("market").state().cache == {"book": 7, "seen": [7]}
        await node.load(package(durability=durability))
        assert node.reactor("market").state().cache == {"book": 7, "seen": [7]}
        await node.load(package(durability=durability, **change))
        assert node.reactor("market").state().cache == {"seen": []}
        await node.settle()
        if address is not None:
            node = await node.crash()
            assert node.reactor("market").state().cache == {"seen": []}
        await node.push("book", 8)
        await node.settle()
        assert node.reactor("market").state().cache["book"] == 8
