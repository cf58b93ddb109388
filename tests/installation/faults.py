"""Faults: a plan that a seed decides, and what carries it out."""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

from tests.installation.front import Front
from tests.installation.package_under_test import PackageName, write_package
from tests.installation.processes import Installation
from tests.postgres import PostgresServer

PATIENCE = 120.0  # seconds for a process to be ready again
GAPS = (0.6, 2.4)  # seconds between two faults
FREEZES = (1.0, 8.0)
FIRST_WORKER = 2.0  # seconds that a worker has for itself, while no server runs
BLACKOUTS = (0.35, 0.75)  # when all servers die, as parts of the time
WITHDRAWAL = 1.0  # seconds for which a package is published no more

Kind = Literal["kill", "freeze", "swap mill", "swap annex", "withdraw", "move", "restart the database", "blackout"]

WEIGHTS: dict[Kind, int] = {
    "kill": 10,
    "freeze": 4,
    "swap mill": 2,
    "swap annex": 2,
    "withdraw": 3,
    "move": 3,
    "restart the database": 4,
}


class Fault(NamedTuple):
    """A fault: when it begins, whom it hits, and how long it lasts."""

    at: float
    kind: Kind
    victim: str = ""
    seconds: float = 0.0


def make_plan(seed: int, seconds: float, victims: list[str], *, has_database: bool) -> list[Fault]:
    """Return the faults of a seed, in order."""
    chance = random.Random(seed)
    plan = [Fault(seconds * part, "blackout") for part in BLACKOUTS]
    kinds = [kind for kind in WEIGHTS if has_database or kind != "restart the database"]
    at = chance.uniform(*GAPS)
    while at < seconds:
        (kind,) = chance.choices(kinds, [WEIGHTS[one] for one in kinds])
        victim = chance.choice(victims) if kind in ("kill", "freeze") else ""
        plan.append(Fault(at, kind, victim, chance.uniform(*FREEZES) if kind == "freeze" else 0.0))
        at += chance.uniform(*GAPS)
    return sorted(plan)


class FaultInjector:
    """Carries out a plan."""

    def __init__(self, installation: Installation, front: Front, folder: Path, postgres: PostgresServer | None) -> None:
        self.counts: dict[str, int] = {}
        self._installation = installation
        self._front = front
        self._folder = folder
        self._postgres = postgres
        self._editions = count(1)
        self._swapping = asyncio.Lock()
        self._withdrawing = asyncio.Lock()
        self._moving = asyncio.Lock()
        self._restarting = asyncio.Lock()

    async def run(self, plan: list[Fault]) -> None:
        """Carry out a plan; return when the last fault has ended, and all processes are ready again."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))  # real time: the plan's
                self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
                group.create_task(self._carry_out(fault), name=fault.kind)
        places = [place for place in self._installation.places if place.is_wanted]
        await self._installation.until_ready(places, PATIENCE)

    async def publish(self, name: PackageName) -> None:
        """Upload the next edition of a package."""
        async with self._swapping:
            await self._front.upload(write_package(self._folder, self._folder, name, next(self._editions)))

    async def _carry_out(self, fault: Fault) -> None:
        kinds: dict[Kind, Callable[[], Awaitable[None]]] = {
            "kill": lambda: self._kill(fault.victim),
            "freeze": lambda: self._freeze(fault.victim, fault.seconds),
            "swap mill": lambda: self.publish("mill"),
            "swap annex": lambda: self.publish("annex"),
            "withdraw": lambda: self._unless_busy(self._withdrawing, self._withdraw),
            "move": lambda: self._unless_busy(self._moving, self._move),
            "restart the database": lambda: self._unless_busy(self._restarting, self._restart_database),
            "blackout": self._black_out,
        }
        await kinds[fault.kind]()

    async def _unless_busy(self, lock: asyncio.Lock, carry_out: Callable[[], Awaitable[None]]) -> None:
        """Leave a fault out while the last one of its kind goes on: on a slow machine, they would become a queue."""
        if not lock.locked():
            async with lock:
                await carry_out()

    async def _kill(self, victim: str) -> None:
        self._installation.place(victim).signal(signal.SIGKILL)

    async def _freeze(self, victim: str, seconds: float) -> None:
        place = self._installation.place(victim)
        frozen = place.pid
        place.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)  # real time: the fault
        if place.pid == frozen:
            place.signal(signal.SIGCONT)

    async def _withdraw(self) -> None:
        """Let all nodes unload the package of the keyed reactor, and load it again."""
        await self._front.withdraw("annex")
        await asyncio.sleep(WITHDRAWAL)  # real time: nodes unload it
        await self.publish("annex")

    async def _move(self) -> None:
        """Let a server join, or leave in order."""
        joiner = self._installation.joiner
        if joiner.is_wanted:
            await joiner.stop()
        else:
            await self._installation.until_ready([joiner], PATIENCE)

    async def _restart_database(self) -> None:
        assert self._postgres is not None
        await asyncio.to_thread(self._postgres.restart, "immediate")

    async def _black_out(self) -> None:
        """Kill all processes; a worker starts first, and only then the servers."""
        async with self._moving:
            hit = [place for place in self._installation.places if place.is_wanted]
            for place in hit:
                place.want(is_wanted=False)
                place.signal(signal.SIGKILL)
            for place in hit:
                await place.ended.wait()
            await self._installation.until_ready([place for place in hit if place.kind == "worker"], PATIENCE)
            await asyncio.sleep(FIRST_WORKER)  # real time: it loads the package
            await self._installation.until_ready(hit, PATIENCE)
