"""Monitors a shop: a graph judges every response immediately; a slow one starts a workflow that investigates it.

    tidemill dev examples    runs it, beside the other examples

Change SLOW while it runs, and save: the new code judges the next response, and the count so far is kept.
"""

import asyncio
import random

import tidemill as tm

SLOW = 250.0


class Answer(tm.Boundary):
    """The response time of the shop."""

    milliseconds: float


class Streak(tm.Boundary):
    """The number of consecutive fast responses."""

    fine: int = 0


class Slow(tm.Boundary):
    """A response that took too long: what an incident is about."""

    milliseconds: float


# -- the graph: twice a second, in microseconds ------------------------------------------------------------------------


@tm.polling(every="500ms")
async def answer() -> Answer:
    """Query the shop; here, a random number that is slow now and then."""
    return Answer(round(random.expovariate(1 / 80), 1))


streaks = tm.window("streaks", Streak, capacity=1)
uptime = tm.Reactor("uptime", [answer, streaks], when=tm.any_of(answer))
judge = tm.Graph("judge", reactor=uptime)


@judge.node
def is_fine(answer: Answer) -> bool:
    """Judge one response."""
    return answer.milliseconds <= SLOW


@judge.node(feeds=streaks)
def streak(is_fine: bool, streaks: list[Streak]) -> Streak:
    """Count consecutive fast responses."""
    return Streak(streaks[-1].fine + 1 if streaks and is_fine else int(is_fine))


@judge.node
def slow(is_fine: bool, answer: Answer) -> Slow | None:
    """Decide whether there is an incident: each value starts a run of the workflow below."""
    return None if is_fine else Slow(answer.milliseconds)


# -- incidents: a durable workflow per outage --------------------------------------------------------------------------

incident = tm.Workflow("incident", params=Slow, triggers=[tm.on_output(judge.slow, cooldown="5s")], max_active_runs=2)


@incident.task(retry=tm.Retry(3, delay="300ms", on=(ConnectionError,)))
def ask_again(params: Slow, ctx: tm.Context) -> float:
    """Query the shop once more, over an unreliable connection."""
    if random.random() < 0.4:
        raise ConnectionError("no line to the shop")
    ctx.log.info("it took %.0f ms", params.milliseconds)
    return round(random.expovariate(1 / 80), 1)


@incident.task
def suspects() -> list[str]:
    """List possible causes."""
    return ["database", "network", "disk"]


@incident.task(each="suspects")
async def look_at(suspects: str) -> str:
    """Check one of them; all are checked concurrently."""
    await asyncio.sleep(random.uniform(0.2, 1.0))
    return f"{suspects} is fine"


@incident.task
def conclude(ask_again: float, look_at: list[str]) -> str:
    """Summarise the result."""
    return f"{'still slow' if ask_again > SLOW else 'it is over'}; {', '.join(look_at)}"
