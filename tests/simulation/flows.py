"""Workflows made from recipes, whose tasks record which attempts started, and how many of one run at a time."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import tidemill as tm
from tests.simulation.run_audit import audit
from tidemill.kernel.clock import VirtualClock
from tidemill.workflows.records import RunRecord

ITEMS = [10, 20, 30]


class Recipe(NamedTuple):
    """One task: how long it takes, how it behaves, and after whom it comes."""

    seconds: float = 0.0
    failures: int = 0
    """How many of its tries fail before one does not."""
    retries: int = 0
    end: str = "value"
    """What a try that does not fail comes to: "value" or "skip"."""
    defers: float = 0.0
    timeout: float | None = None
    is_mapped: bool = False
    after: tuple[int, ...] = ()
    rule: str | None = None


class World:
    """A workflow `flow` with tasks t0, t1 ... and a list `items` for those that are mapped; and what came of them."""

    def __init__(self, recipes: list[Recipe], name: str = "flow") -> None:
        self.clock = VirtualClock()
        self.begun: list[str] = []
        """The tokens of all attempts whose code began, in order."""
        self.overlaps: list[tuple[str, str]] = []
        """Attempts of one task run that were at it at the same time: the older one, the younger one."""
        self._inside: dict[str, list[str]] = {}
        self._tries: Counter[str] = Counter()
        self.flow = tm.Workflow(name, max_active_runs=3)
        if any(recipe.is_mapped for recipe in recipes):
            self._add("items", Recipe(), lambda: ITEMS, list[int])
        for number, recipe in enumerate(recipes):
            after = tuple(index for index in recipe.after if index < number)
            self._add(f"t{number}", recipe._replace(after=after), lambda number=number: number, int)  # type: ignore[misc]

    def _add(self, name: str, recipe: Recipe, value: Callable[[], Any], returns: Any) -> None:
        async def task(ctx: tm.Context) -> Any:
            return await self._at_work(recipe, ctx, value)

        async def element(items: int, ctx: tm.Context) -> int:
            return await self._at_work(recipe, ctx, lambda: items)

        function: Any = element if recipe.is_mapped else task
        function.__name__ = function.__qualname__ = name
        function.__annotations__["return"] = returns
        options: dict[str, Any] = {"after": [f"t{index}" for index in recipe.after]}
        if recipe.rule is not None and recipe.after and not recipe.is_mapped:
            options["rule"] = recipe.rule
        if recipe.is_mapped:
            options["each"] = "items"
        if recipe.retries:
            options["retry"] = tm.Retry(recipe.retries, delay="2s")
        if recipe.timeout is not None:
            options["timeout"] = recipe.timeout
        self.flow.task(**options)(function)

    async def _at_work(self, recipe: Recipe, ctx: tm.Context, value: Callable[[], Any]) -> Any:
        who = ctx.token.partition("#")[0]
        inside = self._inside.setdefault(who, [])
        self.overlaps += [(other, ctx.token) for other in inside]
        self.begun.append(ctx.token)
        inside.append(ctx.token)
        try:
            if recipe.seconds:
                await self.clock.sleep(recipe.seconds)
            if recipe.defers:
                ctx.defer(for_=recipe.defers)
            if ctx.attempt <= recipe.failures:
                raise ConnectionError(f"try {ctx.attempt}")
            if recipe.end == "skip":
                raise tm.Skip("as the recipe says")
            return value()
        finally:
            inside.remove(ctx.token)

    def inside(self) -> dict[str, list[str]]:
        """Return the attempts whose code runs now, by task run."""
        return {who: list(tokens) for who, tokens in self._inside.items() if tokens}

    async def check(self, node: tm.testing.TestNode, *, is_one_leader: bool = True) -> list[RunRecord]:
        """Check everything that must hold at any moment; return all runs."""
        specs = {self.flow.name: self.flow.wired().spec}
        records = await audit(node.probe.workflows.store, specs, is_one_leader=is_one_leader)
        assert len(set(self.begun)) == len(self.begun), "an attempt was executed twice"
        attempts = [
            one for record in records for one in await node.probe.workflows.store.runs.read_attempts(record.run.id)
        ]
        outcomes = {str(one.key): one.outcome for one in attempts}
        assert set(self.begun) <= set(outcomes), "an attempt was executed that no worker had claimed"
        for older, younger in self.overlaps:
            assert outcomes[older] == "cancelled", f"{younger} began while {older} was at it"
        assert all(len(tokens) == 1 for tokens in self.inside().values()), self.inside()
        return records


async def turns(number: int = 20) -> None:
    """Give everybody a few turns of the loop."""
    for _ in range(number):
        await asyncio.sleep(0)
