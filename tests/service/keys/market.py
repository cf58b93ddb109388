"""A reactor with every kind of accumulator that keeps something, with keys and without."""

import asyncio
from typing import Any

import tidemill as tm

KEYS = ("a", "b", "c")
POISON = 13


class Tick(tm.Boundary):
    key: str
    value: int


class Total(tm.Boundary):
    value: int = 0


class Sum(tm.Boundary):
    values: tuple[int, ...]


class Seen(tm.Boundary):
    price: int


class Market:
    """The declarations; each call of the class makes new ones."""

    def __init__(
        self,
        *,
        keyed: bool,
        is_async: bool = False,
        needs_context: bool = True,
        has_slow_totals: bool = False,
        **options: Any,
    ) -> None:
        @tm.passthrough
        def prices(event: Tick) -> Tick | None:
            return None if event.value < 0 else event

        totals = _slow_totals() if has_slow_totals else _totals()

        fills = _slow_fills() if has_slow_totals else _fills()

        seen = tm.window("seen", Seen, capacity=3)
        named = {"any": "any", "all": "all", "some": tm.any_of(prices), "both": tm.all_of(prices, totals)}
        if "when" in options:
            options["when"] = named[options["when"]]
        if keyed:
            options.setdefault("partitions", 1)  # these tests are about what happens inside a partition
            options["key"] = {prices: "key", totals: "key", fills: lambda event: event.key}
        self.reactor = tm.Reactor("market", [prices, totals, fills, seen], **options)
        self.graph = tm.Graph("maker", reactor=self.reactor)
        if is_async:
            self._add_async_node()
        else:
            self._add_node()
        if needs_context:
            self._add_window(seen)

    def _add_node(self) -> None:
        @self.graph.node
        def decide(prices: Tick | None, totals: Total | None, fills: Sum | None, seen: list[Seen]) -> list[Any]:
            return _decide(prices, totals, fills, seen)

    def _add_async_node(self) -> None:
        @self.graph.node
        async def decide(prices: Tick | None, totals: Total | None, fills: Sum | None, seen: list[Seen]) -> list[Any]:
            await asyncio.sleep(0)
            return _decide(prices, totals, fills, seen)

    def _add_window(self, seen: Any) -> None:
        @self.graph.node(feeds=seen)
        def tick(decide: list[Any], ctx: tm.Context) -> Seen | None:
            assert ctx.key is None or ctx.key in KEYS
            return None if decide[0] is None else Seen(decide[0])

    @property
    def load(self) -> list[Any]:
        return [self.reactor, self.graph]


def _totals() -> Any:
    @tm.passthrough(state=Total)
    def totals(event: Tick, state: Total) -> Total:
        return Total(state.value + event.value)

    return totals


def _slow_totals() -> Any:
    @tm.passthrough(state=Total)
    async def totals(event: Tick, state: Total) -> Total:
        await asyncio.sleep(0)
        return Total(state.value + event.value)

    return totals


def _fills() -> Any:
    @tm.batch(every="1s", max_size=3)
    def fills(events: list[Tick]) -> Sum:
        return Sum(tuple(one.value for one in events))

    return fills


def _slow_fills() -> Any:
    @tm.batch(every="1s", max_size=3)
    async def fills(events: list[Tick]) -> Sum:
        await asyncio.sleep(0)
        return Sum(tuple(one.value for one in events))

    return fills


def _decide(prices: Tick | None, totals: Total | None, fills: Sum | None, seen: list[Seen]) -> list[Any]:
    if prices is not None and prices.value == POISON:
        raise ValueError("thirteen")
    return [
        None if prices is None else prices.value,
        None if totals is None else totals.value,
        None if fills is None else fills.values,
        [one.price for one in seen],
    ]
