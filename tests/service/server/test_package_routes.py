"""Packages over HTTP: uploads that nodes load, their state and steps, problems by file and line, and withdrawals."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tests.service.server.graph_samples import market
from tests.service.server.serving_node import Served, served
from tidemill.api.packages import ImportProblem
from tidemill.kernel.errors import Location, Problem
from tidemill.packages.format.archive import read_folder_or_archive
from tidemill.packages.format.private_key import generate_key
from tidemill.packages.format.signature import sign
from tidemill.server.routes import packages
from tidemill.storage.tables.packages import TrustedKey

MARKET = """\
import tidemill as tm

@tm.passthrough
def tick(event: int) -> int:
    return event

market = tm.Reactor("market", [tick])
"""
COUNTING = """\
import tidemill as tm

flow = tm.Workflow("flow")

@flow.task
def count() -> int:
    return {number}
"""
DESK = """\
import tidemill as tm

desk = tm.Graph("desk", reactor="market")

@desk.node
def out(tick: int) -> int:
    return tick
"""
BROKEN = f"""\
{MARKET}
maker = tm.Graph("maker", reactor=market)

@maker.node
def out(tack: int) -> int:
    return tack
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node that loads what is published."""
    async with tm.Node(settings={"load_published": True}) as node, served(node) as one:
        yield one


def archive(folder: Path, code: str, version: str = "1.0.0") -> bytes:
    """Return the archive of a package."""
    return read_folder_or_archive(package(folder, code, version)).to_archive()


async def upload(server: Served, name: str, content: bytes, **query: Any) -> httpx.Response:
    """Upload an archive."""
    return await server.http.put(f"/packages/{name}", content=content, params=query, timeout=30)


async def test_an_uploaded_package_is_loaded_and_shows_its_steps(server: Served, tmp_path: Path) -> None:
    """http.md: PUT archive bytes; state, and the six steps with their times."""
    content = archive(tmp_path / "market", MARKET)
    made = await upload(server, "market", content)
    assert (made.status_code, made.headers["location"]) == (201, "/api/v1/packages/market")
    view = made.json()
    assert (view["state"], view["version"], view["published"], view["problems"]) == ("loaded", "1.0.0", "1.0.0", [])
    assert [one["step"] for one in view["steps"]] == [
        "schedules",
        "triggers",
        "reactors",
        "graphs without a reactor",
        "graphs of reactors",
        "workflows",
    ]
    assert all(one["started_at"] and one["duration"] >= 0 and not one["failed"] for one in view["steps"])
    assert (await server.node.push("tick", 1)).accepted
    again = await upload(server, "market", content)
    assert (again.status_code, again.json()["version"]) == (200, "1.0.0")
    assert (await server.http.get("/packages/market")).json() == again.json()
    listed = (await server.http.get("/packages")).json()
    assert [one["name"] for one in listed["items"]] == ["market"]


async def test_a_needed_package_is_not_withdrawn(server: Served, tmp_path: Path) -> None:
    """http.md: 409 with the guard's text while it is needed; then 204, and nothing of it is left."""
    await upload(server, "market", archive(tmp_path / "market", MARKET))
    await upload(server, "desk", archive(tmp_path / "desk", DESK))
    refused = await server.http.delete("/packages/market")
    assert (refused.status_code, refused.json()["code"]) == (409, "reactor_in_use")
    assert "desk" in refused.json()["detail"]
    assert (await server.http.get("/packages/market")).json()["published"] == "1.0.0"
    for name in ("desk", "market"):
        assert (await server.http.delete(f"/packages/{name}")).status_code == 204
        missing = await server.http.get(f"/packages/{name}")
        assert (missing.status_code, missing.json()["code"]) == (404, "package_not_found")
    assert server.node.registry.reactors() == []


async def test_a_package_that_cannot_be_imported_is_not_published(server: Served, tmp_path: Path) -> None:
    """S-1: problems by file and line, before anything is stored."""
    answer = await upload(server, "market", archive(tmp_path / "market", BROKEN))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_definition")
    [problem] = answer.json()["errors"]
    assert ("did you mean 'tick'" in problem["message"], problem["path"].endswith(".py:11")) == (True, True), problem
    assert (await server.http.get("/packages")).json()["total"] == 0


async def test_uploads_that_are_refused_say_why(server: Served, tmp_path: Path) -> None:
    """http.md: damaged, misnamed, older and oversized archives."""
    content = archive(tmp_path / "market", MARKET, "2.0.0")
    for name, body, expected in (
        ("market", b"no archive", (400, "invalid_package")),
        ("market", content[:-30], (400, "invalid_package")),
        ("markt", content, (400, "wrong_package")),
        ("market", b"x" * (packages.UPLOAD_LIMIT + 1), (413, "body_too_large")),
    ):
        refused = await upload(server, name, body)
        assert (refused.status_code, refused.json()["code"]) == expected
    await upload(server, "market", content)
    older = archive(tmp_path / "market", MARKET, "1.0.0")
    refused = await upload(server, "market", older)
    assert (refused.status_code, refused.json()["code"]) == (409, "downgrade")
    allowed = await upload(server, "market", older, allow_downgrade=True)
    assert (allowed.status_code, allowed.json()["version"]) == (201, "1.0.0")


async def test_a_package_that_fails_to_load_is_an_import_error(server: Served, tmp_path: Path) -> None:
    """S-1: what probes well can still fail beside what is loaded."""
    await server.node.load(market()[0])
    failed = (await upload(server, "market", archive(tmp_path / "market", MARKET))).json()
    assert (failed["state"], failed["version"], "market" in failed["reason"]) == ("failed", None, True)
    errors = (await server.http.get("/import-errors")).json()["items"]
    assert [(one["package"], one["version"]) for one in errors] == [("market", "1.0.0")]


def test_a_problem_shows_the_line_of_its_file_as_it_is_now(tmp_path: Path) -> None:
    """S-8: import errors by file and line, with the code; a file that is gone has none."""
    file = tmp_path / "market.py"
    problem = Problem(message="a name is unknown", location=Location("market.py", 2))

    def line(source: Path | str) -> str | None:
        return ImportProblem.shown(problem, str(source)).source_line

    assert line(file) is None
    file.write_text("import tidemill as tm\n    price = pirce\n")
    assert line(file) == line(tmp_path) == "price = pirce"
    file.write_text("import tidemill as tm\nprice = 4\n# repaired\n")
    assert line(tmp_path) == "price = 4"
    assert line("the registry") is None


async def test_what_a_program_loaded_is_listed_and_unloaded(server: Served) -> None:
    """http.md: packages of any origin; unknown ones have suggestions."""
    name = await server.node.load(market()[0])
    view = (await server.http.get(f"/packages/{name}")).json()
    assert (view["state"], view["published"]) == ("loaded", None)
    unknown = await server.http.delete(f"/packages/{name}x")
    assert (unknown.status_code, unknown.json()["suggestions"]) == (404, [name])
    assert (await server.http.delete(f"/packages/{name}")).status_code == 204
    assert (await server.http.get("/packages")).json()["items"] == []


async def test_a_node_that_loads_nothing_published_says_so(tmp_path: Path) -> None:
    """http.md: the registry is the store's; other nodes load the package."""
    async with tm.Node() as node, served(node) as server:
        made = await upload(server, "market", archive(tmp_path / "market", MARKET))
        assert (made.status_code, made.json()["state"], made.json()["version"]) == (201, "published", None)


async def test_an_unsigned_package_is_refused_where_signatures_are_required(tmp_path: Path) -> None:
    """P-9: the policy of the node holds for uploads; nothing is published."""
    async with tm.Node(settings={"require_signatures": True}) as node, served(node) as server:
        refused = await upload(server, "market", archive(tmp_path / "market", MARKET))
        assert (refused.status_code, refused.json()["code"]) == (403, "unsigned_package")
        assert (await server.http.get("/packages")).json()["total"] == 0


async def test_the_source_of_every_version_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-8: versions with a diff of the code, also after the package was changed twice."""
    without_child_processes(monkeypatch)
    async with tm.Node() as node, served(node) as server:
        for number in (1, 2, 3):
            await node.load(package(tmp_path / "counting", COUNTING.format(number=number), f"{number}.0.0"))
        versions = (await server.http.get("/workflows/flow")).json()["versions"]
        assert [one["current"] for one in versions] == [True, False, False]
        shown = [(await server.http.get(f"/workflows/flow/versions/{one['version']}")).json() for one in versions]
        assert [one["source"] for one in shown] == [COUNTING.format(number=number) for number in (3, 2, 1)]


POOLED = COUNTING.replace("@flow.task", '@flow.task(pool="scoring")').format(number=1)


async def test_a_missing_pool_is_named_with_its_command_and_the_package_follows_the_pool(tmp_path: Path) -> None:
    """D17: on the server that makes the pool and on the other one, long before the retry after 30 s."""
    address, settings = f"sqlite:///{tmp_path}/store.db", {"load_published": True, "package_poll_interval": "100ms"}
    async with (
        tm.Node(address, settings=settings | {"tick_interval": "100ms"}) as first,
        tm.Node(address, settings=settings | {"tick_interval": "100ms"}) as second,
        served(first) as one,
        served(second) as other,
    ):
        uploaded = (await upload(one, "pooled", archive(tmp_path / "pooled", POOLED))).json()
        assert uploaded["state"] == "failed"
        assert "there is no pool 'scoring': make it with `tidemill pool set scoring 2`" in uploaded["reason"]
        await until_package(other, "pooled", "failed")
        assert (await one.http.put("/pools/scoring", json={"slots": 2})).is_success
        for server in (one, other):
            await until_package(server, "pooled", "loaded")


async def until_package(server: Served, name: str, state: str) -> None:
    """Wait until a server has a package in a state."""
    async with asyncio.timeout(10):
        while (await server.http.get(f"/packages/{name}")).json()["state"] != state:  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.02)


async def test_a_rollback_to_a_named_version_loads_that_one(server: Served, tmp_path: Path) -> None:
    """F3: not the one below the published one; a version that was never published is named with those that were."""
    for number in (1, 2, 3):
        content = archive(tmp_path / "counting", COUNTING.format(number=number), f"{number}.0.0")
        assert (await upload(server, "counting", content)).is_success
    rolled = await server.http.post("/packages/counting/rollback", json={"version": "1.0.0"}, timeout=30)
    assert (rolled.status_code, rolled.json()["published"], rolled.json()["version"]) == (200, "1.0.0", "1.0.0")
    run = await server.node.start("flow")
    assert (await run.wait()).outputs["count"] == 1
    unknown = await server.http.post("/packages/counting/rollback", json={"version": "0.9.0"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "package_version_not_found")
    assert "it has 1.0.0, 3.0.0, 2.0.0" in unknown.json()["detail"]


async def test_a_rollback_to_an_unsigned_version_is_refused_where_signatures_are_required(tmp_path: Path) -> None:
    """P-9, F3: a kept archive is checked like an upload, with the keys that are trusted now."""
    store = f"sqlite:///{tmp_path / 'packages.db'}"
    async with tm.Node(store, settings={"load_published": True}) as node, served(node) as server:
        content = archive(tmp_path / "counting", COUNTING.format(number=1))
        assert (await upload(server, "counting", content)).is_success
    settings = {"load_published": True, "require_signatures": True}
    async with tm.Node(store, settings=settings) as node, served(node) as server:
        author = generate_key("author")
        at = node.access.clock.now()
        key = TrustedKey(tenant="public", id=author.public.id, text=str(author.public), at=at)
        await node.store.trusted_keys.add(key)
        newer = package(tmp_path / "counting", COUNTING.format(number=2), "2.0.0")
        signed = sign(read_folder_or_archive(newer), author).to_archive()
        assert (await upload(server, "counting", signed)).is_success
        refused = await server.http.post("/packages/counting/rollback", json={"version": "1.0.0"})
        assert (refused.status_code, refused.json()["code"]) == (403, "unsigned_package")
        assert (await server.http.get("/packages/counting")).json()["published"] == "2.0.0"
