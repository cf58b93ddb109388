"""Is the shop up? A graph judges every answer at once; a bad one starts a workflow that looks into it.

    tidemill dev examples    runs it, beside the other examples

Change SLOW while that runs, and save: the next answer is judged by the new code, and what was counted so far is still
there.
"""

import asyncio
import random
from typing import Any

import tidemill as tm

SLOW = 250.0


class Answer(tm.Boundary):
    """How long the shop took to answer."""

    milliseconds: float


class Streak(tm.Boundary):
    """How many answers in a row were fine."""

    fine: int = 0


class Incident(tm.Params):
    """The firing that started it."""

    payload: dict[str, Any]
    firing_id: str


# -- twice a second, in microseconds -----------------------------------------------------------------------------------


@tm.polling(every="500ms")
async def answer() -> Answer:
    """Ask the shop; here, a die that is slow now and then."""
    return Answer(round(random.expovariate(1 / 80), 1))


streaks = tm.window("streaks", Streak, capacity=1)
uptime = tm.Reactor("uptime", [answer, streaks], when=tm.any_of(answer))
judge = tm.Graph("judge", reactor=uptime)


@judge.node
def is_fine(answer: Answer) -> bool:
    """Judge one answer."""
    return answer.milliseconds <= SLOW


@judge.node(feeds=streaks)
def streak(is_fine: bool, streaks: list[Streak]) -> Streak:
    """Count."""
    return Streak(streaks[-1].fine + 1 if streaks and is_fine else int(is_fine))


# -- when something is wrong, in its own time, and whatever happens meanwhile ------------------------------------------

incident = tm.Workflow(
    "incident",
    params=Incident,
    triggers=[tm.on_firing("uptime", when=f"payload.answer.milliseconds > {SLOW}")],
    max_active_runs=2,
)


@incident.task(retry=tm.Retry(3, delay="300ms", on=(ConnectionError,)))
def ask_again(params: Incident, ctx: tm.Context) -> float:
    """Ask once more, over a line that is not always there."""
    if random.random() < 0.4:
        raise ConnectionError("no line to the shop")
    ctx.log.info("it took %.0f ms", params.payload["answer"]["milliseconds"])
    return round(random.expovariate(1 / 80), 1)


@incident.task
def suspects() -> list[str]:
    """Name what may be the reason."""
    return ["database", "network", "disk"]


@incident.task(each="suspects")
async def look_at(suspects: str) -> str:
    """Look at one of them; all are looked at side by side."""
    await asyncio.sleep(random.uniform(0.2, 1.0))
    return f"{suspects} is fine"


@incident.task
def conclude(ask_again: float, look_at: list[str]) -> str:
    """Say what it was."""
    return f"{'still slow' if ask_again > SLOW else 'it is over'}; {', '.join(look_at)}"
