"""Faults of package loads: deploy steps that fail on demand, and a load that is cut off by a crash."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from tidemill.kernel.errors import StoreError
from tidemill.node import Node
from tidemill.packages.deploy.change import PackageChange
from tidemill.packages.deploy.pipeline import Pipeline
from tidemill.packages.deploy.steps import DeployStep

Verb = Literal["apply", "roll_back", "remove"]
Moment = Literal["before", "after"]
"""When a step fails: before it has its effect, or after it."""

OnEffect = Callable[[Verb, str], Awaitable[None]]
"""Called after a step has had its effect, with the verb and the title of the step."""


class FaultyStep(DeployStep):
    """A deploy step that fails on demand."""

    def __init__(self, step: DeployStep, on_effect: OnEffect) -> None:
        self.title = step.title
        self.awaits_author_code = step.awaits_author_code
        self._step = step
        self._on_effect = on_effect
        self.faults: dict[Verb, list[Moment]] = {"apply": [], "roll_back": [], "remove": []}
        """The moments at which the next calls of each verb fail."""

    async def apply(self, change: PackageChange) -> None:
        await self._call("apply", self._step.apply, change)

    async def roll_back(self, change: PackageChange) -> None:
        await self._call("roll_back", self._step.roll_back, change)

    async def remove(self, change: PackageChange) -> None:
        await self._call("remove", self._step.remove, change)

    async def _call(
        self, verb: Verb, method: Callable[[PackageChange], Awaitable[None]], change: PackageChange
    ) -> None:
        fault = self.faults[verb].pop(0) if self.faults[verb] else None
        if fault != "before":
            await method(change)
            await self._on_effect(verb, self.title)
        if fault is not None:
            raise StoreError(f"{verb} of {self.title} fails on purpose, {fault} its effect")


class DeployFaults:
    """Wraps the deploy steps of a node, records which had their effect, and makes them fail on demand."""

    def __init__(self, node: Node) -> None:
        self.on_effect: OnEffect | None = None
        """Called after each effect of a step."""
        self._effects: list[tuple[Verb, str]] = []
        pipeline = node._packages.installer.pipeline
        self.steps = [FaultyStep(step, self._record) for step in pipeline.steps]
        pipeline.steps = tuple(self.steps)

    async def _record(self, verb: Verb, title: str) -> None:
        self._effects.append((verb, title))
        if self.on_effect is not None:
            await self.on_effect(verb, title)

    def take_effects(self) -> dict[Verb, list[str]]:
        """Return the titles of the steps that had their effect since the last call, by verb, oldest first."""
        verbs: tuple[Verb, ...] = ("apply", "roll_back", "remove")
        effects = {verb: [title for one, title in self._effects if one == verb] for verb in verbs}
        self._effects.clear()
        return effects

    def fail(self, verb: Verb, step: int, *moments: Moment) -> None:
        """Make the next calls of a step, counted from 1, fail at these moments."""
        self.steps[step - 1].faults[verb] = list(moments)

    def clear(self) -> None:
        """Let every step succeed again."""
        for step in self.steps:
            for moments in step.faults.values():
                moments.clear()

    @contextmanager
    def failing(
        self, *, roll_back: int | None = None, remove: int | None = None, moments: Sequence[Moment] = ()
    ) -> Iterator[None]:
        """Make a rollback or a removal fail as well; at the end every ordered fault must have happened."""
        if roll_back is not None:
            self.fail("roll_back", roll_back, *moments)
        if remove is not None:
            self.fail("remove", remove, *moments)
        yield
        unused = [(one.title, one.faults) for one in self.steps if any(one.faults.values())]
        assert not unused, unused


def abandon_deploys(pipeline: Pipeline) -> None:
    """Leave a load that is cut off as it is, as the death of the process would: nothing is rolled back."""

    async def leave(*_: object) -> None:
        return

    vars(pipeline)["_roll_back"] = leave
