"""The systemd units pass `systemd-analyze`, and agree with what the commands accept and need.

On a machine without systemd only their structure is checked, and the test run says so.
"""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import typer.main

from tests.service.export.tools import exported, has_tool, run_tool
from tidemill.cli.main import app
from tidemill.kernel.durations import parse_duration
from tidemill.kernel.settings import Settings
from tidemill.server.serving import DRAIN_SECONDS

EXPOSURE_LIMIT = 2.0
"""Of 10, as `systemd-analyze security` counts; below 2.0 it says "OK"."""
UNITS = {"server": "tidemill.service", "worker": "tidemill-worker@.service"}

Unit = Mapping[str, Sequence[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the exported units, and one worker: templates cannot be verified."""
    exported("systemd", tmp_path)
    shutil.copy(tmp_path / UNITS["worker"], tmp_path / "tidemill-worker@1.service")
    return tmp_path


def parse_unit(path: Path) -> Unit:
    """Return the values of each directive, in order; AssertionError for a line that is none."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            name, equals, value = line.partition("=")
            assert equals, line
            found[name].append(value)
    return found


def test_systemd_accepts_the_units(folder: Path) -> None:
    """S-Ops: no unknown directive, no wrong value, and the program exists."""
    units = [folder / "tidemill.service", folder / "tidemill-worker@1.service"]
    assert all(parse_unit(one)["ExecStart"] for one in units)
    if has_tool("systemd-analyze"):
        verified = run_tool("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units)
        assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("name", ["tidemill.service", "tidemill-worker@1.service"])
def test_systemd_finds_the_units_well_protected(folder: Path, name: str) -> None:
    """A task that runs foreign code reaches little of its machine."""
    assert parse_unit(folder / name)["NoNewPrivileges"] == ["yes"]
    if has_tool("systemd-analyze"):
        limit = f"--threshold={EXPOSURE_LIMIT * 10:.0f}"
        rated = run_tool("systemd-analyze", "security", "--offline=true", "--no-pager", limit, folder / name)
        assert rated.returncode == 0, rated.stdout


@pytest.mark.parametrize("name", UNITS.values())
def test_a_unit_hands_no_file_with_keys_to_tasks(folder: Path, name: str) -> None:
    """S-6: tasks run as the user of the service: a credential is open to them, what systemd reads as root is not."""
    unit = parse_unit(folder / name)
    assert unit["EnvironmentFile"][0] == "-/etc/tidemill/tidemill.env"
    assert not unit.keys() & {"LoadCredential", "LoadCredentialEncrypted", "SetCredential"}
    assert not [value for value in unit["Environment"] if "_FILE=" in value]


@pytest.mark.parametrize("command", UNITS)
def test_a_unit_uses_options_that_the_command_has(folder: Path, command: str) -> None:
    """And variables that the unit gives a value."""
    unit = parse_unit(folder / UNITS[command])
    (start,) = unit["ExecStart"]
    _, name, *words = start.split()
    assert name == command
    options = {word for one in typer.main.get_command(app).get_command(None, command).params for word in one.opts}  # type: ignore[attr-defined]
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options
    variables = {word.partition("${")[2].rstrip("}") for word in words if "${" in word}
    assert variables <= {pair.partition("=")[0] for line in unit["Environment"] for pair in line.split()}


def test_a_server_has_time_to_drain(folder: Path) -> None:
    """systemd kills it only long after everything that it waits for."""
    (limit,) = parse_unit(folder / UNITS["server"])["TimeoutStopSec"]
    assert float(limit) >= 2 * (DRAIN_SECONDS + Settings().unload_timeout)


def test_a_worker_has_time_to_drain(folder: Path) -> None:
    """As much as its `--drain-timeout` says, and some more."""
    unit = parse_unit(folder / UNITS["worker"])
    drain = parse_duration(unit["ExecStart"][0].partition("--drain-timeout ")[2])
    (limit,) = unit["TimeoutStopSec"]
    assert parse_duration(limit.replace("min", "m")) > drain


def test_both_units_protect_the_same(folder: Path) -> None:
    """A directive that one of them gets belongs to the other too."""
    server, worker = (parse_unit(folder / name) for name in UNITS.values())
    own = {"Description", "After", "ExecStart", "Environment", "EnvironmentFile", "TimeoutStopSec"}
    assert {name: server[name] for name in server.keys() - own} == {name: worker[name] for name in worker.keys() - own}
