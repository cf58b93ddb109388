"""`tidemill server` as a process: it says where it answers, asks for a key, and drains on SIGTERM."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.postgres import PostgresServer
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


SLOW_PACKAGE = """\
import os, time
import tidemill as tm

while not os.path.exists({gate!r}):
    time.sleep(0.01)

report = tm.Workflow("report")

@report.task
def write() -> int:
    return 1
"""


def test_a_server_is_ready_when_its_packages_have_been_tried(tmp_path: Path) -> None:
    """Ops: a load balancer sends no request for a workflow that is not loaded yet; a broken package delays nothing."""
    packages, gate = tmp_path / "packages", tmp_path / "gate"
    packages.mkdir()
    (packages / "slow.py").write_text(SLOW_PACKAGE.format(gate=str(gate)))
    (packages / "broken.py").write_text("import tidemill as tm\n\nthis_name_is_not_defined\n")
    options = ("--no-auth", "--packages", str(packages))
    with server_process(f"sqlite:///{tmp_path}/tidemill.db", *options) as server:
        while "still being loaded" not in (answer := httpx.get(f"{server.url}/health/ready")).text:
            assert answer.status_code == 503
        assert (answer.status_code, answer.json()["status"]) == (503, "not_ready")
        gate.touch()
        while (answer := httpx.get(f"{server.url}/health/ready")).status_code != 200:
            pass
        assert httpx.post(f"{server.url}/api/v1/workflows/report/runs", json={}).status_code == 201
        [reason] = [one["reason"] for one in answer.json()["checks"] if not one["ok"]]
        assert reason == "1 could not be loaded or removed: see GET /api/v1/packages"


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


FLOW = """import tidemill as tm

flow = tm.Workflow("report")


@flow.task
async def fetch() -> int:
    return 1
"""


def read_events(url: str, count: int, after: str | None = None) -> list[dict[str, Any]]:
    """Return so many events of runs from the feed of a server."""
    headers = {} if after is None else {"last-event-id": after}
    found: list[dict[str, Any]] = []
    with httpx.stream("GET", f"{url}/api/v1/events?types=run.*", headers=headers, timeout=20) as answer:
        lines = answer.iter_lines()
        while len(found) < count:
            line = next(lines)
            if line.startswith("data:"):
                found.append(json.loads(line.removeprefix("data:")))
    return found


def run_report(url: str) -> str:
    """Start a run, once the workflow is loaded, and wait for its end."""
    deadline = time.monotonic() + 20
    while (answer := httpx.post(f"{url}/api/v1/workflows/report/runs", json={"params": {}})).status_code != 201:
        assert time.monotonic() < deadline, answer.text
    run = str(answer.json()["id"])
    while httpx.get(f"{url}/api/v1/runs/{run}").json()["state"] not in ("success", "failed"):
        assert time.monotonic() < deadline
    return run


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
def test_a_server_runs_on_either_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event_loop: str) -> None:
    """The setting `event_loop`: requests, tasks in processes of their own, and the drain work on both."""
    monkeypatch.setenv("TIDEMILL_EVENT_LOOP", event_loop)
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "report.py").write_text(FLOW)
    options = ("--no-auth", "--packages", str(tmp_path / "packages"), "--executor", "subprocess")
    with server_process(f"sqlite:///{tmp_path}/tidemill.db", *options) as server:
        run = run_report(server.url)
        assert httpx.get(f"{server.url}/api/v1/runs/{run}").json()["state"] == "success"
        assert server.stop() == 0


def test_the_event_feed_continues_at_another_server_after_kill_9(postgres: PostgresServer, tmp_path: Path) -> None:
    """S-3: `Last-Event-ID` of a server that is gone; no event of a run is missing, and none comes twice."""
    (tmp_path / "report.py").write_text(FLOW)
    store = asyncio.run(postgres.fresh_store())
    options = ("--no-auth", "--packages", str(tmp_path))
    with server_process(store, *options) as first, server_process(store, *options) as second:
        before = run_report(first.url)
        everything = read_events(first.url, 2, after="0-0-x")
        run = run_report(second.url)
        first.process.kill()
        later = run_report(second.url)
        resumed = read_events(second.url, 5, after=everything[0]["id"])
    assert [(one["run"], one["type"]) for one in everything] == [(before, "run.started"), (before, "run.ended")]
    assert [(one["run"], one["type"]) for one in resumed] == [
        (before, "run.ended"),
        *((one, kind) for one in (run, later) for kind in ("run.started", "run.ended")),
    ]
