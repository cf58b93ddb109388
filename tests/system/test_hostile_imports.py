"""Packages that attack the server while it probes them, seen from a server process."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.service.package_folders import package
from tests.system import refusing_namespaces
from tests.system.server_process import ServerProcess, server_process
from tidemill.packages.format.archive import read_folder_or_archive
from tidemill.packages.loading.probe_isolation import can_make_namespace, make_signal_scope

REFUSING = (sys.executable, refusing_namespaces.__file__)
SIGNAL = "import os, signal\nos.kill(os.getppid(), signal.{})\n"
LOOK = """\
import os
try:
    os.kill({}, 0)
except OSError:
    raise ValueError('it cannot be signalled')
raise ValueError('it can be signalled')
"""


def upload(server: ServerProcess, folder: Path, code: str) -> str:
    """Upload a package that cannot be imported; return what the server says about it."""
    content = read_folder_or_archive(package(folder / "shop", code)).to_archive()
    answer = httpx.put(f"{server.url}/api/v1/packages/shop", content=content, timeout=30)
    assert answer.status_code == 400, answer.text
    return str(answer.json()["errors"][0]["message"])


@pytest.mark.parametrize("launcher", [(), REFUSING], ids=["as the system allows", "without namespaces"])
def test_a_package_cannot_signal_its_server_by_its_parent(tmp_path: Path, launcher: Sequence[str]) -> None:
    """P-7: neither with a signal that ends, nor with one that kills; by its number as far as the system can."""
    with server_process(f"sqlite:///{tmp_path}/tm.db", "--no-auth", launcher=launcher) as server:
        for name in ("SIGUSR2", "SIGKILL"):
            upload(server, tmp_path, SIGNAL.format(name))
        is_out_of_reach = (not launcher and has_namespaces()) or has_signal_scopes()
        expected = "it cannot be signalled" if is_out_of_reach else "it can be signalled"
        assert expected in upload(server, tmp_path, LOOK.format(server.process.pid))
        assert httpx.get(f"{server.url}/health/live").json() == {"status": "live"}
        assert server.stop() == 0


def has_namespaces() -> bool:
    """Return whether this machine lets processes of this user make namespaces."""
    read_end, write_end = os.pipe()
    try:
        return can_make_namespace(read_end)
    finally:
        os.close(read_end)
        os.close(write_end)


def has_signal_scopes() -> bool:
    """Return whether this machine can keep the signals of a process to itself."""
    if (descriptor := make_signal_scope()) is None:
        return False
    os.close(descriptor)
    return True
