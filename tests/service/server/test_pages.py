"""Pages: the web UI at the root, and the documentation below /docs."""

import gzip
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tidemill.server.authentication import CredentialAuthentication

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SCRIPT = {"accept": "*/*"}
FILES = {
    "ui/index.html": "<title>Tidemill</title>",
    "ui/assets/main-3f2a.js": "console.log('ui')",
    "ui/favicon.svg": "<svg/>",
    "docs/index.html": "<h1>Documentation</h1>",
    "docs/404.html": "<h1>No such page</h1>",
    "docs/how-to/index.html": "<h1>How to</h1>",
    "secret.txt": "not for the web",
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    """A server that wants a key, with small sites: pages need none."""
    static = tmp_path / "static"
    for name, text in FILES.items():
        (static / name).parent.mkdir(parents=True, exist_ok=True)
        (static / name).write_text(text, encoding="utf-8")
    for encoding in ("gz", "br"):
        (static / f"ui/assets/main-3f2a.js.{encoding}").write_bytes(gzip.compress(encoding.encode()))
    async with tm.Node() as node, served(node, CredentialAuthentication(node.access), static) as one:
        yield one


async def fetch(server: Served, path: str, headers: dict[str, str] = BROWSER) -> httpx.Response:
    """Return the answer for a path exactly as it is written."""
    async with httpx.AsyncClient() as client:
        url = httpx.URL(server.url).copy_with(raw_path=path.encode())
        return await client.get(url, headers={"accept-encoding": "identity", **headers})


async def test_a_browser_gets_the_ui_at_the_root_and_at_every_path_of_its_pages(server: Served) -> None:
    """S-8: the UI has pages of its own, which links lead to."""
    for path in ("/", "/runs/01J8", "/reactors/market?tab=firings", "/a/b/c"):
        answer = await fetch(server, path)
        assert (answer.status_code, answer.text) == (200, FILES["ui/index.html"]), path
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"


async def test_the_root_is_the_ui_for_programs_too(server: Served) -> None:
    """S-8: `curl` shows what is at the address that `tidemill dev` prints."""
    answer = await fetch(server, "/", SCRIPT)
    assert (answer.status_code, answer.text) == (200, FILES["ui/index.html"])


async def test_what_a_program_asks_for_in_vain_is_a_problem(server: Served) -> None:
    """http.md: errors are problem details; a script that is missing is not a page."""
    for path in ("/runs/01J8", "/assets/main-0000.js"):
        answer = await fetch(server, path, SCRIPT)
        assert (answer.status_code, answer.json()["code"]) == (404, "route_not_found"), path


@pytest.mark.parametrize("path", ["/api", "/api/v1/nothing", "/api/v2/dags", "/ws/nothing", "/health", "/metrics/x"])
async def test_paths_of_the_api_are_no_pages(server: Served, path: str) -> None:
    """S-1: also in a browser, an unknown route of the API is a problem."""
    answer = await fetch(server, path)
    assert (answer.status_code, answer.json()["code"]) == (404, "route_not_found")


async def test_a_file_with_a_hash_in_its_name_is_kept_for_good(server: Served) -> None:
    """S-9: a page loads once; the rest is asked for again, and sent if it has changed."""
    script = await fetch(server, "/assets/main-3f2a.js", SCRIPT)
    assert script.text == FILES["ui/assets/main-3f2a.js"]
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    icon = await fetch(server, "/favicon.svg", SCRIPT)
    assert icon.headers["cache-control"] == "no-cache"
    again = await fetch(server, "/favicon.svg", {"if-none-match": icon.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", icon.headers["etag"])
    assert (await fetch(server, "/favicon.svg", {"if-none-match": '"0-0"'})).text == FILES["ui/favicon.svg"]


async def test_a_file_that_has_changed_is_sent_although_its_time_and_size_are_the_same(
    server: Served, tmp_path: Path
) -> None:
    """S-9: reproducible builds give every file the same time, in every version."""
    page = tmp_path / "static/ui/index.html"
    os.utime(page, (0, 0))
    before = await fetch(server, "/")
    page.write_text(FILES["ui/index.html"].upper(), encoding="utf-8")
    os.utime(page, (0, 0))
    after = await fetch(server, "/", {**BROWSER, "if-none-match": before.headers["etag"]})
    assert (after.status_code, after.text) == (200, FILES["ui/index.html"].upper())


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, deflate, br", "br"), ("gzip", "gzip"), ("gzip;q=0.5, br;q=0", "gzip"), ("gzip;q=0", None), ("", None)],
)
async def test_a_compressed_copy_is_sent_where_it_is_accepted(
    server: Served, accepted: str, encoding: str | None
) -> None:
    """S-9: first load at most 300 kB gzip."""
    headers = {"accept-encoding": accepted, **SCRIPT}
    async with server.http.stream("GET", f"{server.url}/assets/main-3f2a.js", headers=headers) as answer:
        assert answer.headers.get("content-encoding") == encoding
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert "accept-encoding" in answer.headers["vary"]
        sent = b"".join([part async for part in answer.aiter_raw()])
    plain = FILES["ui/assets/main-3f2a.js"].encode()
    copies = {None: plain, "br": gzip.compress(b"br", mtime=0), "gzip": gzip.compress(b"gz", mtime=0)}
    assert sent[10:] == copies[encoding][10:]  # after the header, which has the time


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/docs/../../secret.txt",
        "/docs/%2e%2e%2fsecret.txt",
        "/docs//../secret.txt",
        "/..%5csecret.txt",
        "/link.txt",
        "/%00",
        "/" + "x" * 300,
        "/docs/" + "x" * 300,
        "/x" * 3000,
        "/%ff%fe",
        "/assets",
        "/{absolute}",
        "/docs/{absolute}",
    ],
)
async def test_no_path_leads_out_of_the_folder(server: Served, tmp_path: Path, path: str) -> None:
    """Fault 80: neither dots, nor their encodings, nor links, nor absolute paths."""
    (tmp_path / "static" / "ui" / "link.txt").symlink_to(tmp_path / "static" / "secret.txt")
    answer = await fetch(server, path.format(absolute=tmp_path / "static" / "secret.txt"), SCRIPT)
    assert answer.status_code == 404, answer.text
    assert FILES["secret.txt"] not in answer.text


async def test_the_documentation_is_a_site_of_folders(server: Served) -> None:
    """S-8: links of pages are relative, so that a folder ends with a slash."""
    for path, target, file in (
        ("/docs", "docs/", "docs/index.html"),
        ("/docs/how-to", "how-to/", "docs/how-to/index.html"),
    ):
        redirect = await fetch(server, path)
        assert (redirect.status_code, redirect.headers["location"]) == (307, target)
        page = await fetch(server, f"{path}/")
        assert (page.status_code, page.text) == (200, FILES[file])
    missing = await fetch(server, "/docs/nothing")
    assert (missing.status_code, missing.text) == (404, FILES["docs/404.html"])
    assert (await fetch(server, "/docs/nothing.js", SCRIPT)).json()["code"] == "route_not_found"


async def test_a_server_without_the_sites_says_how_to_build_them(tmp_path: Path) -> None:
    """A clone has no web UI until it is built."""
    async with tm.Node() as node, served(node, static=tmp_path) as server:
        for path, command in (("/", "make ui"), ("/docs/", "make docs")):
            answer = await fetch(server, path)
            assert answer.status_code == 404
            assert f"<pre>{command}</pre>" in answer.text
            assert 'href="/api/docs"' in answer.text


async def test_pages_are_no_operations_of_the_api(server: Served) -> None:
    """S-1: the OpenAPI document is for programs."""
    paths = (await server.http.get("/openapi.json")).json()["paths"]
    assert not [path for path in paths if path == "/" or path.startswith("/docs") or "path}" in path]
