"""Kills a program at random moments, and reads its journal."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from tests.system import killed_program
from tests.system.killed_program import Ack, Effect, Life

Line = TypeVar("Line", Ack, Effect)
Durability = Literal["interval", "fire", "boundary"]

LONGEST_LIFE = 0.4  # seconds until the kill, from the first acknowledgement or from the start
STILLBORN = 0.25  # the probability of the latter: then the kill may interrupt the restore of its state
PATIENCE = 30.0  # seconds for the first acknowledgement
MOMENT = 0.001  # seconds between two checks
KILLED = b"%d\n" % -signal.SIGKILL
MANY_KILLS = 3
MANY_ACKS = 120  # acknowledged events; a program that was killed before it had as many proves nothing


class Lives(msgspec.Struct):
    """The journals of all processes of a program."""

    acks: list[Ack]
    effects: list[Effect]
    kills: dict[int, float]  # when each process was killed
    seed: int


class Mother:
    """A process that starts the processes of the program."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._living: int | None = None

    def give_birth(self, life: Life) -> None:
        """Start a process."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(life) + b"\n")
        self._process.stdin.flush()
        self._living = int(self._answer())

    def kill(self) -> float:
        """Kill the running process with all its children; return the moment before. Fails if it has ended by itself."""
        assert self._living is not None
        moment = time.monotonic()
        with suppress(ProcessLookupError):
            os.killpg(self._living, signal.SIGKILL)
        self._living = None
        assert self._answer() == KILLED, "the program ended by itself"
        return moment

    def await_end(self) -> bytes:
        """Wait for a process that ends by itself."""
        answer, self._living = self._answer(), None
        return answer

    def end(self) -> None:
        """Kill everything that is left."""
        if self._living is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._living, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def mother(acks: Path, effects: Path) -> Iterator[Mother]:
    """Run the program, with no process yet."""
    command = [sys.executable, "-m", killed_program.__name__, str(acks), str(effects)]
    root = Path(killed_program.__file__).parents[2]
    mother = Mother(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root))
    try:
        yield mother
    finally:
        mother.end()


def kill_again_and_again(
    folder: Path,
    store: str,
    durability: Durability,
    seconds: float,
    seed: int,
    *,
    trouble: AbstractContextManager[None] | None = None,
) -> Lives:
    """Start and kill a program for some seconds, with faults in between, and then shut it down cleanly."""
    chance = random.Random(seed)
    acks, effects = folder / "acks", folder / "effects"
    acks.touch()
    effects.touch()
    kills: dict[int, float] = {}
    ends = time.monotonic() + seconds
    with mother(acks, effects) as program:
        with trouble or nullcontext():
            while time.monotonic() < ends or not _shows_something(acks, len(kills)):
                assert time.monotonic() < ends + PATIENCE, f"{len(kills)} kills, and hardly anything was acknowledged"
                life = _life(len(kills), store, durability, chance, is_hard=trouble is not None)
                size = acks.stat().st_size
                program.give_birth(life)
                if chance.random() >= STILLBORN:
                    _await_growth(acks, size)
                let_pass(chance.uniform(0, LONGEST_LIFE))
                kills[life.number] = program.kill()
        program.give_birth(msgspec.structs.replace(life, number=len(kills), is_last=True, is_hard=False))
        assert program.await_end() == b"0\n", f"seed {seed}: the last life did not end in good order"
    return Lives(_lines(acks, Ack), _lines(effects, Effect), kills, seed)


def seed() -> int:
    """Return the seed of the moments: TIDEMILL_TEST_KILL_SEED, random in a soak, and otherwise fixed."""
    if given := int(os.environ.get("TIDEMILL_TEST_KILL_SEED", "0")):
        return given
    return random.SystemRandom().randrange(1, 2**32) if "TIDEMILL_TEST_SOAK_SECONDS" in os.environ else 1


def _shows_something(acks: Path, kills: int) -> bool:
    """Return whether there were enough kills and events; their number per second depends on the machine."""
    said = acks.read_bytes()
    return kills >= MANY_KILLS and said.count(b"\n") - said.count(b'"rejected"') >= MANY_ACKS


def _life(number: int, store: str, durability: Durability, chance: random.Random, *, is_hard: bool) -> Life:
    return Life(
        number=number,
        store=store,
        durability=durability,
        pause=chance.choice([0.0, 0.001]) if durability == "boundary" else 0.002,
        is_async=chance.random() < 0.5,
        is_last=False,
        is_hard=is_hard,
    )


def _await_growth(path: Path, size: int) -> None:
    """Wait until something was written to a file."""
    ends = time.monotonic() + PATIENCE
    while path.stat().st_size <= size:
        assert time.monotonic() < ends, f"nothing was acknowledged for {PATIENCE} s"
        let_pass(MOMENT)


def let_pass(seconds: float) -> None:
    """Sleep: a random time until a kill, or a moment until the next check."""
    signal.sigtimedwait([], seconds)


def _lines(path: Path, kind: type[Line]) -> list[Line]:
    return [msgspec.json.decode(line, type=kind) for line in path.read_bytes().splitlines()]
