"""`tidemill server` as a process: it says where it answers, asks for a key, and drains on SIGTERM."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.system.server_process import server_process


def test_a_server_without_authentication_answers_and_drains(tmp_path: Path) -> None:
    """http.md: the first line of standard output says where it answers; SIGTERM drains and exits 0."""
    with server_process(f"sqlite:///{tmp_path}/tidemill.db", "--no-auth") as server:
        assert httpx.get(f"{server.url}/api/v1/me").json()["actor"] == "local"
        assert server.stop() == 0


def test_a_server_asks_for_a_key(tmp_path: Path) -> None:
    """S-4: nothing but health, version and the documentation answers without one."""
    with server_process(f"sqlite:///{tmp_path}/tidemill.db") as server:
        refused = httpx.get(f"{server.url}/api/v1/me")
        assert (refused.status_code, refused.json()["code"]) == (401, "no_key")
        assert httpx.get(f"{server.url}/health/live").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_a_server_without_authentication_stays_on_loopback(tmp_path: Path, host: str) -> None:
    """http.md: `--no-auth` is refused for a host that is not loopback."""
    command = [sys.executable, "-m", "tidemill", "server", "--store", f"sqlite:///{tmp_path}/tidemill.db"]
    refused = subprocess.run([*command, "--no-auth", "--host", host], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--no-auth needs a loopback host" in refused.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """The error says which address is taken, and what to do."""
    with server_process(f"sqlite:///{tmp_path}/tidemill.db", "--no-auth") as server:
        port = server.url.rpartition(":")[2]
        command = [sys.executable, "-m", "tidemill", "server", "--store", f"sqlite:///{tmp_path}/other.db"]
        refused = subprocess.run(
            [*command, "--no-auth", "--port", port], capture_output=True, text=True, check=False, timeout=30
        )
    assert refused.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_server_logs_its_requests(tmp_path: Path, log_format: str) -> None:
    """Ops: a line per request with its id and its principal, and no query: it may hold a ticket."""
    log = tmp_path / "log"
    options = ("--no-auth", "--log-format", log_format)
    with (
        log.open("w") as stream,
        server_process(f"sqlite:///{tmp_path}/tidemill.db", *options, stderr=stream) as server,
    ):
        httpx.get(f"{server.url}/api/v1/me?ticket=secret", headers={"x-request-id": "batch-7"})
        assert server.stop() == 0
    (line,) = [one for one in log.read_text().splitlines() if "/api/v1/me" in one]
    assert "secret" not in log.read_text()
    if log_format == "json":
        fields = json.loads(line)
        expected = {"event": "request.answered", "method": "GET", "route": "/api/v1/me", "status": 200}
        assert fields.items() >= (expected | {"actor": "local", "tenant": "public", "request_id": "batch-7"}).items()
        assert fields["duration"] > 0
    else:
        assert "INFO request.answered: request_id=batch-7, method=GET, route=/api/v1/me, status=200" in line
