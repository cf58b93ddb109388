"""Sensor monitoring: a graph judges every temperature at once, and an alert starts a workflow that calls for help.

    tidemill dev examples --pool warehouse=1    run it, with the other examples

Four machines report their temperature eight times a second. Every half minute one of them overheats: the graph
`monitor` notices it within two seconds and returns an `Alert`, which starts a run of `callout`. However many readings
are too hot, a machine gets one run a minute: `dedup` says what an alert is about, `cooldown` how long it counts.

Every reading also goes to a second reactor, whose batch sums up ten seconds.

Change HOT while it runs, and save: the next reading is judged by the new code.
"""

import asyncio
import random
from collections.abc import AsyncIterator

import tidemill as tm

HOT = 85.0
"""The temperature above which a machine needs help."""

MACHINES = ("boiler", "compressor", "turbine", "chiller")

# -- data --------------------------------------------------------------------------------------------------------------


class Reading(tm.Boundary):
    """One temperature of one machine."""

    sensor: str
    celsius: float


class Alert(tm.Boundary):
    """A machine that is too hot: what a run of `callout` is about."""

    sensor: str
    celsius: float


class Summary(tm.Boundary):
    """The readings of ten seconds."""

    readings: int
    coolest: float
    hottest: float


# -- the simulated plant -----------------------------------------------------------------------------------------------


class Plant:
    """Four machines whose temperatures drift, as a source; its checkpoint counts the readings."""

    READINGS_PER_SECOND = 8
    EPISODE = 30 * READINGS_PER_SECOND
    """Readings from one machine that overheats to the next."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)

    async def start(self, reached: int | None) -> AsyncIterator[tuple[Reading, int]]:
        """Yield a reading of each machine in turn."""
        number = reached or 0
        while True:
            await asyncio.sleep(1 / self.READINGS_PER_SECOND)
            number += 1
            yield self.reading(number), number

    def reading(self, number: int) -> Reading:
        """Return a reading: around 60 degrees, and up to 35 more for the machine whose turn it is to overheat."""
        machine = number % len(MACHINES)
        episode, moment = divmod(number, self.EPISODE)
        excess = min(35.0, moment / 2, max(0.0, 60 - moment / 2)) if machine == episode % len(MACHINES) else 0.0
        return Reading(MACHINES[machine], round(60 + 2 * machine + excess + self._chance.gauss(0, 1), 1))


# -- the graph: judges each reading, in microseconds -------------------------------------------------------------------


@tm.stream(Plant())
def reading(event: Reading) -> Reading | None:
    """Drop what no machine can have."""
    return event if -50 < event.celsius < 500 else None


recent = tm.window("recent", Reading, capacity=16)


@tm.batch(every="10s", max_size=1_000)
def period(events: list[Reading]) -> Summary:
    """Sum up the readings of ten seconds."""
    temperatures = [one.celsius for one in events]
    return Summary(len(events), min(temperatures), max(temperatures))


plant = tm.Reactor("plant", [reading, recent], when=tm.any_of(reading))
monitor = tm.Graph("monitor", reactor=plant)


@monitor.node(feeds=recent)
def remember(reading: Reading) -> Reading:
    """Keep the newest readings."""
    return reading


@monitor.node(feeds=period)
def report(reading: Reading) -> Reading:
    """Pass every reading to the other reactor."""
    return reading


@monitor.node
def average(reading: Reading, recent: list[Reading]) -> float:
    """Average the newest readings of one machine: a single hot one may be noise."""
    own = [one.celsius for one in recent if one.sensor == reading.sensor]
    return round((sum(own) + reading.celsius) / (len(own) + 1), 1)


@monitor.node
def alert(reading: Reading, average: float) -> Alert | None:
    """Decide whether the machine needs help: each value starts a run of the workflow below."""
    return Alert(reading.sensor, average) if average > HOT else None


statistics = tm.Reactor("statistics", [period])
overview = tm.Graph("overview", reactor=statistics)


@overview.node
def spread(period: Summary) -> float:
    """Return how far the machines are apart."""
    return round(period.hottest - period.coolest, 1)


# -- the workflow: one durable run per alert ---------------------------------------------------------------------------

callout = tm.Workflow(
    "callout",
    params=Alert,
    triggers=[tm.on_output(monitor.alert, dedup="output.sensor", cooldown="1m")],
    tags=["plant"],
)


@callout.task(retry=tm.Retry(4, delay="1s", on=(ConnectionError,)))
def confirm(params: Alert, ctx: tm.Context) -> float:
    """Ask the machine once more, over a line that fails two times in five."""
    if random.Random(f"{params}/{ctx.attempt}").random() < 0.4:
        raise ConnectionError(f"no line to the {params.sensor}")
    ctx.log.info("%s: %.1f degrees are confirmed", params.sensor, params.celsius)
    return params.celsius


@callout.task
def on_call(params: Alert) -> list[str]:
    """Look up who is on call for the machine."""
    return ["Ada", "Grace", "Edsger"] if params.sensor in ("boiler", "turbine") else ["Barbara", "Alan"]


@callout.task(each="on_call")
async def page(on_call: str, confirm: float, ctx: tm.Context) -> str:
    """Page one engineer; all are paged at the same time."""
    await asyncio.sleep(random.Random(ctx.token).uniform(0.2, 1.5))
    ctx.log.info("%s has been paged: %.1f degrees", on_call, confirm)
    return on_call


@callout.task
def cool_down(page: list[str], ctx: tm.Context) -> str:
    """Give the machine twenty seconds. A deferred task occupies no slot, and the wait survives a restart."""
    ctx.defer(for_="20s")
    ctx.log.info("%s is on site", page[0])
    return page[0]


@callout.task
def close(cool_down: str, params: Alert) -> str:
    """Close the case."""
    return f"{params.sensor} had {params.celsius} degrees; {cool_down} took care of it"
