"""Definitions that tests of `tm.on_output` start from; every call makes fresh ones."""

from datetime import date
from decimal import Decimal
from typing import Any

import tidemill as tm


class Reading(tm.Boundary):
    """What arrives."""

    sensor: str
    celsius: float


class Alert(tm.Boundary):
    """A decision that starts work."""

    sensor: str
    celsius: float
    price: Decimal = Decimal("1.5")
    day: date = date(2026, 1, 2)


class Calm(tm.Boundary):
    """A decision that starts nothing."""

    sensor: str


class Plant:
    """Reactor `r` over `reading`; graph `monitor`, whose terminal nodes are `alert` and `audit`."""

    def __init__(self, *, fails: Any = lambda reading: False, asynchronous: bool = False, **options: Any) -> None:
        @tm.passthrough
        def reading(event: Reading) -> Reading:
            return event

        self.reactor = tm.Reactor("r", [reading], **options)
        self.graph = monitor = tm.Graph("monitor", reactor=self.reactor)

        def judge(reading: Reading) -> Alert | Calm | None:
            if fails(reading):
                raise RuntimeError("broken")
            if reading.celsius == 0:
                return None
            hot = reading.celsius > 100
            return Alert(sensor=reading.sensor, celsius=reading.celsius) if hot else Calm(sensor=reading.sensor)

        async def judge_slowly(reading: Reading) -> Alert | Calm | None:
            return judge(reading)

        judge_slowly.__name__ = "alert"
        judge.__name__ = "alert"
        monitor.node(judge_slowly if asynchronous else judge)

        @monitor.node
        def summary(reading: Reading) -> str:
            return f"{reading.sensor}: {reading.celsius}"

        @monitor.node
        def audit(summary: str) -> dict[str, str]:
            return {"line": summary}

        self.load = [self.reactor, monitor]


def cooler(seen: list[Any], name: str = "cool", **options: Any) -> tm.Workflow:
    """Return a workflow whose params are an Alert."""
    flow = tm.Workflow(name, params=Alert, triggers=[tm.on_output("monitor", "alert", **options)])

    @flow.task
    def act(params: Alert, ctx: tm.Context) -> None:
        seen.append((params, ctx["firing_id"], ctx["inputs"]))

    return flow


async def heat(node: Any, *celsius: float, sensor: str = "a") -> None:
    """Push readings of a sensor, and let everything follow from them."""
    for value in celsius:
        await node.push("reading", Reading(sensor=sensor, celsius=value))
    await node.settle()


def degrees(seen: list[Any]) -> list[float]:
    """Return what the runs were started for."""
    return [params.celsius for params, *_ in seen]
