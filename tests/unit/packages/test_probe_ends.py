"""Probe processes end with their parent, whatever it dies of."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.executor_harness import until
from tests.processes import alive_with
from tests.unit.packages.package_samples import folder_of

MANIFEST = b'[package]\nname = "shop"\nversion = "1.0.0"\n'
TRYING = """
import asyncio, sys
from pathlib import Path
from tidemill.kernel.clock import VirtualClock
from tidemill.packages.format.manifest import read_manifest
from tidemill.packages.loading.probe import ProbeLimits, run_probe
folder = Path(sys.argv[1])
manifest = read_manifest((folder / "package.toml").read_bytes())
limits = ProbeLimits(wall=float(sys.argv[2]))
asyncio.run(run_probe(folder, manifest, limits=limits, clock=VirtualClock()))
"""
HANGING = {
    "sleeps": "import time\ntime.sleep(600)",
    "works": "while True: pass",
    "catches": "while True:\n try: open('/dev/null').close()\n except BaseException: pass",
    "holds the lock": "import ctypes\nctypes.PyDLL(None).sleep(600)",
}


@contextmanager
def tried_elsewhere(folder: Path, code: str, wall: float) -> Iterator[subprocess.Popen[bytes]]:
    """Try a package in another program, whose clock stands still: it ends nothing by itself."""
    folder_of(folder / "shop", {"package.toml": MANIFEST, "shop.py": code.encode()})
    command = [sys.executable, "-c", TRYING, str(folder / "shop"), str(wall)]
    with subprocess.Popen(command, env=os.environ | {"TMPDIR": str(folder)}) as program:
        try:
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("code", HANGING.values(), ids=HANGING)
async def test_a_probe_ends_with_the_process_that_asked(tmp_path: Path, code: str) -> None:
    """P-7: although that was killed, and whatever the package does; so does what the package has started."""
    note = tmp_path / "note"
    begun = "import os, subprocess\nother = subprocess.Popen(['sleep', '600'])\n"
    begun += f"open({str(note)!r}, 'w').close()\n"
    with tried_elsewhere(tmp_path, f"{begun}{code}\n", wall=600):
        await until(note.exists)
        assert len(alive_with(str(tmp_path).encode())) >= 3  # the program, the import, and what that has started
    await until(lambda: not alive_with(str(tmp_path).encode()))


async def test_a_probe_without_a_parent_ends_itself(tmp_path: Path) -> None:
    """P-7: some seconds after its time, also if it has closed the pipe by which it would hear of an end."""
    note = tmp_path / "note"
    code = f"import os, time\nos.closerange(3, 100)\nopen({str(note)!r}, 'w').close()\n"
    with tried_elsewhere(tmp_path, f"{code}time.sleep(600)\n", wall=0.5):
        await until(note.exists)
    await until(lambda: not alive_with(str(tmp_path).encode()))


def warm_probe_of_a_killed_process(folder: Path) -> Path:
    """Return where the system shows the warm_probe of a process that was killed."""
    code = "import time\nfrom tidemill.packages.loading.probe import WarmProbe\n"
    code += "warm_probe = WarmProbe()\nwarm_probe.start()\nprint(warm_probe.pid, flush=True)\ntime.sleep(60)\n"
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        number = program.stdout.readline().decode().strip()
        program.kill()
    return Path("/proc", number)


async def test_a_warm_probe_ends_with_its_owner(tmp_path: Path) -> None:
    """P-7: whatever that dies of, nothing is left."""
    place = warm_probe_of_a_killed_process(tmp_path)
    await until(lambda: not list(tmp_path.iterdir()))
    await until(lambda: not place.exists() or ") Z " in (place / "stat").read_text())
