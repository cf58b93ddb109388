"""Clients that start runs: each start has a key, under which it is repeated until it is acknowledged."""

import math
import random
from itertools import count

from tests.installation.front import Front
from tests.installation.journal import StartAnswered, StartSent
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import TidemillError

REPETITIONS = 0.3  # the share of starts that are sent once more after their acknowledgement


async def start_over_http(front: Front, name: str) -> None:
    """Start runs with `Idempotency-Key`, each at any server."""
    for number in count(1):
        if front.is_closing.is_set():
            return
        key = f"{name}-{number}"
        front.journal.write(StartSent(key))
        repetitions = 2 if random.random() < REPETITIONS else 1
        for _ in range(repetitions):
            await _start(front, key)
        await front.pause()


async def _start(front: Front, key: str) -> None:
    """Start a run; the workflow is never withdrawn, so a server that does not know it is loading it, however slowly."""
    answer = await front.post_until_answered(
        "/workflows/job/runs", key, refusal_limit=math.inf, json={"params": {"token": key}}
    )
    if answer is not None:
        front.journal.write(StartAnswered(key, answer.body["id"]))


async def start_with_client(front: Front, name: str) -> None:
    """Start runs with the client of the library, which repeats a start by itself; one that raises is not repeated."""
    for number in count(1):
        if front.is_closing.is_set():
            return
        key = f"{name}-{number}"
        front.journal.write(StartSent(key))
        async with front.client(retry=Retry(6, delay=0.1, max_delay=1.0)) as client:
            try:
                run = await client.start("job", token=key)
            except TidemillError:
                pass  # unknown: it has one run at most
            else:
                front.journal.write(StartAnswered(key, run.id))
        await front.pause()
