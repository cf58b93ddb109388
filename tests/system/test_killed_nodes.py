"""kill -9 at random moments, again and again, on real databases: what each durability promises is kept.

A short form runs with every test run; `TIDEMILL_TEST_SOAK_SECONDS` makes it as long as wanted. A failure names its
seed, which decides the moments of the kills; `TIDEMILL_TEST_KILL_SEED` sets it, and a soak takes another one each time.
"""

import asyncio
import os
import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.system.killed_program import NUMBERS, PUSHERS, Ack, Effect
from tests.system.killing import Durability, Lives, kill_again_and_again, let_pass, seed

SECONDS = float(os.environ.get("TIDEMILL_TEST_SOAK_SECONDS", "2"))
SEED = seed()

LOSS = {"boundary": 0.0, "fire": 0.5, "interval": 1.0}
"""Seconds between the acknowledgement of an event and a kill, beyond which the event must have outlived it."""

Key = tuple[str, int, int]  # source, pusher and number of an event

pytestmark = pytest.mark.timeout(SECONDS * 3 + 110)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database that outlives every kill."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tidemill.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.fresh_database()


@pytest.mark.parametrize("durability", ["boundary", "fire", "interval"])
def test_kill_9_takes_no_more_than_the_durability_allows(durability: Durability, store: str, tmp_path: Path) -> None:
    """G-24, G-23, G-11, F51, Q-8. The figures that it prints are those in the documentation."""
    lives = kill_again_and_again(tmp_path, store, durability, SECONDS, SEED)
    with naming(lives.seed):
        check_every_life(lives)
        if durability == "boundary":
            check_nothing_is_lost_or_done_as_something_else(lives)
        lost, forgotten = lost_events(lives), forgotten_events(lives)
        print(figures(lives, durability, store, lost, forgotten))
        assert max(lost + forgotten, default=0.0) <= LOSS[durability]
        assert not [ack for ack in lives.acks if ack.outcome == "rejected"]


async def test_kill_9_while_the_database_is_stopped_and_killed(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """G-24, F10, Q-8: nothing acknowledged is lost if both may die at any time, and nothing refused ever happens."""
    store = await own_postgres.fresh_database()
    trouble = restarts(own_postgres, random.Random(SEED))
    lives = await asyncio.to_thread(
        partial(kill_again_and_again, tmp_path, store, "boundary", 2 * SECONDS, SEED, trouble=trouble)
    )
    refused = {key_of(ack) for ack in lives.acks if ack.outcome == "rejected"}
    lives.acks = [ack for ack in lives.acks if ack.outcome != "rejected"]
    with naming(lives.seed):
        print(figures(lives, f"boundary, {len(refused)} refused,", store, lost_events(lives), forgotten_events(lives)))
        check_every_life(lives)
        check_nothing_is_lost_or_done_as_something_else(lives)
        assert not refused & {key for effect in lives.effects for key in keys_of(effect)}


@contextmanager
def restarts(server: PostgresServer, chance: random.Random) -> Iterator[None]:
    """Bring a server down at random moments, in every way, and up again."""
    ends = threading.Event()

    def restart() -> None:
        while not ends.wait(chance.uniform(0, 0.6)):
            chance.choice([partial(server.stop, "fast"), partial(server.stop, "immediate"), server.kill])()  # type: ignore[operator]
            let_pass(chance.uniform(0, 0.3))
            server.start()

    with ThreadPoolExecutor(1) as thread:
        restarting = thread.submit(restart)
        try:
            yield
        finally:
            ends.set()
        restarting.result()


@contextmanager
def naming(seed: int) -> Iterator[None]:
    """Let a failure say how to repeat it."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"TIDEMILL_TEST_KILL_SEED={seed}: {error}") from error


def figures(lives: Lives, durability: Durability, store: str, lost: list[float], forgotten: list[float]) -> str:
    """Return what was measured, in one line."""
    repeated = len(lives.effects) - len({effect.firing for effect in lives.effects})
    return (
        f"{durability} on {store.partition(':')[0]}: {len(lives.kills)} kills, {len(lives.acks)} acknowledged, "
        f"{len(lives.effects)} firings ({repeated} of them again); never fired: {len(lost)}, "
        f"at most {1000 * max(lost, default=0):.0f} ms before a kill; forgotten by the state: {len(forgotten)}, "
        f"at most {1000 * max(forgotten, default=0):.0f} ms"
    )


# -- in every durability


def check_every_life(lives: Lives) -> None:
    """A firing id means one thing; within a life nothing comes twice or out of order, and the cache is what it saw."""
    assert len(lives.kills) > 2, "hardly anything was killed"
    assert len(lives.acks) > 100, "hardly anything was acknowledged"
    meaning: dict[str, tuple[object, ...]] = {}
    for effect in lives.effects:
        assert meaning.setdefault(effect.firing, deed(effect)) == deed(effect), f"{effect.firing} stands for two things"
    for life in by_life(lives.effects):
        keys = [key for effect in life for key in keys_of(effect)]
        assert len(keys) == len(set(keys)), "an event was consumed twice in one life"
        check_order(keys)
        check_cache(life)
    check_numbers(lives)


def deed(effect: Effect) -> tuple[object, ...]:
    """Return what a firing did, without when."""
    return effect.source, effect.count, effect.events, effect.before, effect.cache


def keys_of(effect: Effect) -> list[Key]:
    """Return the events that a firing consumed."""
    return [(effect.source, event.pusher, event.number) for event in effect.events]


def key_of(ack: Ack) -> Key:
    """Return the event that was acknowledged."""
    return ack.source, ack.pusher, ack.number


def by_life(effects: Iterable[Effect]) -> Iterator[list[Effect]]:
    """Return the effects of each life, in order."""
    lives: dict[int, list[Effect]] = defaultdict(list)
    for effect in effects:
        lives[effect.life].append(effect)
    return iter(lives.values())


def check_order(keys: list[Key]) -> None:
    """The numbers of each pusher grow: at each accumulator, and over those that emit at once."""
    newest: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    for source, pusher, number in keys:
        for which in {source, "c" if source == "c" else "a and b"}:
            assert number > newest[which, pusher], f"event {number} of pusher {pusher} came late at {source}"
            newest[which, pusher] = number


def check_cache(life: list[Effect]) -> None:
    """Each firing sees exactly one more boundary than the one before it, and nothing else has changed."""
    for before, after in pairwise(life):
        expected = before.cache | {after.source: before.cache.get(after.source, 0) + 1}
        assert after.cache == expected, f"after {before} the cache of {after} is not {expected}"
        assert after.count == expected[after.source]


def check_numbers(lives: Lives) -> None:
    """The number that a receipt gives to an event is that of the boundary which its firing saw."""
    counts = {(effect.life, key): effect.count for effect in lives.effects for key in keys_of(effect)}
    for ack in lives.acks:
        if ack.outcome == "emitted" and ack.source != "c" and (ack.life, key_of(ack)) in counts:
            assert counts[ack.life, key_of(ack)] == ack.sequence


# -- what is lost


def lost_events(lives: Lives) -> list[float]:
    """Return how long before the kill those acknowledged events came that never fired."""
    fired = {key for effect in lives.effects for key in keys_of(effect)}
    return [age(lives, ack) for ack in lives.acks if key_of(ack) not in fired]


def forgotten_events(lives: Lives) -> list[float]:
    """Return how long before the kill those acknowledged events came that the next life's state knows nothing of."""
    found: list[float] = []
    for source in "ab":
        acks = [ack for ack in lives.acks if ack.source == source]
        looked_at = -1
        for first in first_of_its_own(lives.effects, source):
            of_before = [ack for ack in acks if looked_at < ack.life < first.life]
            found += [age(lives, ack) for ack in of_before if ack.number > first.before[ack.pusher]]
            looked_at = first.life - 1
    return found


def first_of_its_own(effects: list[Effect], source: str) -> Iterator[Effect]:
    """Return of each life the firing for the first event that was pushed in it: this tells the state before."""
    for life in by_life(effects):
        yield from [one for one in life if one.source == source and life_of(one) == one.life][:1]


def life_of(effect: Effect) -> int:
    """Return the life in which the event of a firing was pushed."""
    return effect.events[0].number // NUMBERS


def age(lives: Lives, ack: Ack) -> float:
    """Return how long before the kill of its life an event was acknowledged."""
    return max(0.0, lives.kills[ack.life] - ack.at)


# -- with durability="boundary"


def check_nothing_is_lost_or_done_as_something_else(lives: Lives) -> None:
    """Every acknowledged event fires, and each event under one firing id only, in one order over all lives."""
    firsts: dict[str, Effect] = {}
    for effect in lives.effects:
        firsts.setdefault(effect.firing, effect)
    keys = [key for effect in firsts.values() for key in keys_of(effect)]
    assert len(keys) == len(set(keys)), "an event was consumed under two firing ids"
    missing = {key_of(ack) for ack in lives.acks} - set(keys)
    assert not missing, f"acknowledged and lost: {sorted(missing)[:10]}"
    check_order(keys)
    check_cache(list(firsts.values()))
    assert forgotten_events(lives) == []
    pushed = {key_of(ack) for ack in lives.acks}
    unacknowledged = [key for key in keys if key not in pushed]
    assert len(unacknowledged) <= PUSHERS * len(lives.kills), "only what was on its way in a kill may be unacknowledged"
