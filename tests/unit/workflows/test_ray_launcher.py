"""The launcher of Ray: which units it reports as gone, by what its gateway sees. No cluster is reached here."""

from collections.abc import AsyncIterator

import pytest

from tidemill.engine.ray.protocol import ProcessState, ProcessStatus
from tidemill.engine.workflows.executors.ray.launcher import RayLauncher, build_name, build_prefix
from tidemill.engine.workflows.executors.remote.interface import UnitObserver, UnitStatus
from tidemill.kernel.clock import VirtualClock
from tidemill.workflows.records import AttemptKey

PREFIX = build_prefix("store")
KEYS = [AttemptKey(f"run{number}", "task", -1, 1) for number in range(3)]
NAMES = [build_name(PREFIX, key) for key in KEYS]


class Recorder(UnitObserver):
    """The last status of each unit."""

    def __init__(self) -> None:
        self.last: dict[AttemptKey, UnitStatus] = {}
        self.removed: list[AttemptKey] = []

    def on_unit(self, key: AttemptKey, status: UnitStatus) -> None:
        self.last[key] = status

    def on_removed(self, key: AttemptKey) -> None:
        self.removed.append(key)

    def states(self) -> list[str]:
        """Return the last states, in the order of the keys."""
        return [self.last[key].state for key in KEYS if key in self.last]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def units() -> Recorder:
    return Recorder()


@pytest.fixture
async def launcher(clock: VirtualClock, units: Recorder) -> AsyncIterator[RayLauncher]:
    """A launcher whose gateway reaches nothing."""
    made = RayLauncher("127.0.0.1:1", clock, namespace="tidemill", runtime_env={}, max_attempts=8, pending_timeout=60.0)
    await made.open(units, "store")
    yield made
    await made.close()


def see(launcher: RayLauncher, *states: ProcessState) -> None:
    """Let the gateway see units in these states."""
    for name, state in zip(NAMES, states, strict=False):
        launcher.on_status(name, ProcessStatus(state=state))


async def test_a_unit_that_vanished_while_there_was_no_connection_is_missing(
    launcher: RayLauncher, units: Recorder
) -> None:
    launcher.on_connected("one")
    launcher.on_listed([])
    see(launcher, "running", "running")
    launcher.on_connected("one")
    launcher.on_listed(NAMES[1:2])
    assert units.states() == ["missing", "running"]


async def test_a_unit_that_is_newer_than_the_connection_is_not_missing(launcher: RayLauncher, units: Recorder) -> None:
    """The first list may be older than the unit."""
    launcher.on_connected("one")
    see(launcher, "pending")
    launcher.on_listed([])
    launcher.on_listed([])
    assert units.states() == ["pending"]


async def test_a_new_cluster_says_nothing_about_what_runs_on_the_old_one(
    launcher: RayLauncher, units: Recorder
) -> None:
    """W-11: attempts that run are judged by their leases; one that has not begun never will."""
    launcher.on_connected("one")
    see(launcher, "running", "pending")
    launcher.on_connected("two")
    launcher.on_listed([])
    assert units.states() == ["running", "missing"]
    assert units.removed[:1] == KEYS[:1], "what runs is out of sight"


async def test_a_unit_that_runs_does_not_wait_again(launcher: RayLauncher, units: Recorder) -> None:
    """W-11: a new gateway calls every unit pending until its actor has answered."""
    launcher.on_connected("one")
    see(launcher, "pending", "running")
    launcher.on_connected("one")
    launcher.on_listed(NAMES)
    see(launcher, "pending", "pending")
    assert units.states() == ["pending", "running"]


async def test_units_are_known_once_their_statuses_have_followed_the_first_list(
    launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that is missing before was not yet seen."""
    monkeypatch.setattr(launcher._gateway, "is_connected", True)
    launcher.on_connected("one")
    launcher.on_listed(NAMES)
    assert not launcher.is_watching("public")
    launcher.on_listed(NAMES)
    assert launcher.is_watching("public")
    launcher.on_connected("one")
    assert not launcher.is_watching("public")
    launcher.on_listed(NAMES)
    launcher.on_listed(NAMES)
    monkeypatch.setattr(launcher._gateway, "is_connected", False)
    assert not launcher.is_watching("public")


async def test_the_end_of_a_unit_is_final(launcher: RayLauncher, units: Recorder) -> None:
    see(launcher, "running")
    launcher.on_status(NAMES[0], ProcessStatus(state="ended", cause="oom", reason="too much"))
    see(launcher, "running")
    assert (units.last[KEYS[0]].cause, units.last[KEYS[0]].reason) == ("oom", "too much")
    launcher.on_status("tidemill/other/attempt/run0/task/-1/1", ProcessStatus(state="running"))
    assert list(units.last) == KEYS[:1]


async def test_a_unit_that_has_ended_is_forgotten_with_its_actor(launcher: RayLauncher, units: Recorder) -> None:
    """A node sees the units of all nodes, for years."""
    launcher.on_connected("one")
    see(launcher, "ended", "ended", "running")
    launcher.on_listed(NAMES[1:2])
    assert units.removed == KEYS[:1]
    launcher.on_listed([])
    assert units.removed == KEYS[:2]
    assert units.states() == ["ended", "ended", "running"]


async def test_without_a_connection_there_are_no_slots(launcher: RayLauncher) -> None:
    assert launcher.free_slots() == 0
