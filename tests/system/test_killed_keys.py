"""kill -9 of a node with many keys, most of them not in memory."""

import asyncio
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.system import keyed_program
from tests.system.keyed_program import KEYS
from tests.system.killing import let_pass, seed

LIVES = 3
MANY_LINES = 120  # before a life is killed


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database that outlives every kill."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tidemill.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.fresh_store()


@pytest.mark.timeout(120)
async def test_kill_9_loses_no_acknowledged_event_of_any_key(store: str, tmp_path: Path) -> None:
    """G-24 for each key: every acknowledged event is applied, once and in order, and nothing else is."""
    lines = tmp_path / "lines"
    lines.touch()
    chance = random.Random(seed())
    for life in range(LIVES):
        await asyncio.to_thread(live_and_die, store, lines, life, chance.uniform(0.0, 0.3))
    shown = await asyncio.to_thread(show, store, lines)
    applied = {int(key): [int(number) for number in numbers] for key, *numbers in map(str.split, shown.splitlines())}
    tried, acknowledged = read(lines, "try"), read(lines, "ack")
    assert len(applied) == KEYS
    assert sum(map(len, acknowledged.values())) > KEYS * LIVES
    for key, numbers in applied.items():
        assert numbers == sorted(set(numbers)), f"key {key}: twice, or out of order"
        assert set(acknowledged[key]) <= set(numbers), f"key {key}: an acknowledged event is lost"
        assert set(numbers) <= set(tried[key])


def live_and_die(store: str, lines: Path, life: int, seconds: float) -> None:
    """Let the program run until it has done something, and a while longer, and kill it."""
    size = lines.stat().st_size
    with run(store, lines, str(life)) as process:
        while lines.stat().st_size < size + MANY_LINES * len("ack 1 1000001"):
            assert process.poll() is None, "the program ended by itself"
            let_pass(0.005)
        let_pass(seconds)
        process.kill()
        assert process.wait() == -signal.SIGKILL


def show(store: str, lines: Path) -> str:
    """Return the state of every key, as a last life prints it."""
    with run(store, lines, "last") as process:
        return process.communicate()[0].decode()


def run(store: str, lines: Path, life: str) -> "subprocess.Popen[bytes]":
    """Start the program."""
    command = [sys.executable, "-m", keyed_program.__name__, store, str(lines), life]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(keyed_program.__file__).parents[2])


def read(lines: Path, word: str) -> dict[int, list[int]]:
    """Return the numbers of each key on the lines that begin with a word."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for line in lines.read_text().splitlines():
        said, key, number = line.split()
        if said == word:
            numbers[int(key)].append(int(number))
    return numbers
