"""Pages for browsers: the web UI at the root, and the documentation below /docs."""

from html import escape
from typing import Any
from urllib.parse import quote

from litestar import Response
from litestar.enums import MediaType
from litestar.response import Redirect

from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import RequestError
from tidemill.server.requests import ApiRequest
from tidemill.server.static_site import PAGE_POLICY, StaticFile, StaticSite

SECURITY_HEADERS = {"referrer-policy": "same-origin", "content-security-policy": PAGE_POLICY}
DOCS_PATH = "/docs"
PROGRAM_PATHS = frozenset(["api", "ws", "health", "metrics"])
"""The first parts of paths that programs use: none of them is a page."""

NOT_BUILT = """\
<!doctype html>
<html lang="en">
<title>Tidemill</title>
<meta name="viewport" content="width=device-width">
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 15vh auto; padding: 0 1rem }}
:root {{ color-scheme: light dark }}</style>
<h1>{title}</h1>
<p>The server runs, but it was installed without {what}. In a clone of the repository, run:</p>
<pre>{command}</pre>
<p>Then reload this page. Until then, see <a href="{prefix}/api/docs">the API</a>.</p>
</html>
"""


async def get_ui(request: ApiRequest) -> Response[Any]:
    """Return the web UI."""
    return await _answer_ui_page(request, request.context.ui)


async def get_ui_file(request: ApiRequest) -> Response[Any]:
    """Return a file of the web UI; a browser that asks for another path gets the web UI, which shows the page."""
    return await _answer_ui(request, request.context.ui)


async def get_docs(request: ApiRequest) -> Response[Any]:
    """Return the first page of the documentation."""
    return await _answer_docs(request, request.context.docs)


async def get_docs_file(request: ApiRequest) -> Response[Any]:
    """Return a page or a file of the documentation."""
    return await _answer_docs(request, request.context.docs)


async def _answer_ui(request: ApiRequest, site: StaticSite) -> Response[Any]:
    if (file := await _read(site, request.scope["path"], request)) is not None:
        return _to_response(file)
    if not _takes_page(request) or request.scope["path"].split("/")[1] in PROGRAM_PATHS:
        raise _no_such_route()
    return await _answer_ui_page(request, site)


async def _answer_ui_page(request: ApiRequest, site: StaticSite) -> Response[Any]:
    if request.prefix and (page := await call_in_thread(site.read, "index.html")) is not None:
        return _to_response(page._replace(content=_below_prefix(page.content, request.prefix)))
    if (file := await _read(site, "index.html", request)) is not None:
        return _to_response(file)
    return _say_not_built(request, "the web UI", "make ui")


def _below_prefix(page: bytes, prefix: str) -> bytes:
    """Return the page of the web UI with its addresses below a prefix, which it gets to know."""
    root = escape(prefix)
    tag = f'<meta name="tidemill-root" content="{root}" />'
    text = page.decode().replace('="/', f'="{root}/').replace("<head>", f"<head>{tag}", 1)
    return text.encode()


async def _answer_docs(request: ApiRequest, site: StaticSite) -> Response[Any]:
    path = request.scope["path"].removeprefix(DOCS_PATH)
    if await call_in_thread(site.is_folder, path):
        if not request.scope["raw_path"].endswith(b"/"):  # the links of a page count from its folder
            return Redirect(f"{quote(request.scope['path'].rpartition('/')[2])}/", status_code=307)
        path += "/index.html"
    if (file := await _read(site, path, request)) is not None:
        return _to_response(file)
    if not _takes_page(request):
        raise _no_such_route()
    if (file := await call_in_thread(site.read, "404.html")) is not None:
        return _to_response(file, status=404)
    return _say_not_built(request, "the documentation", "make docs")


async def _read(site: StaticSite, path: str, request: ApiRequest) -> StaticFile | None:
    encodings, known_etags = request.headers.get("accept-encoding", ""), request.headers.get("if-none-match", "")
    file: StaticFile | None = await call_in_thread(site.read, path, encodings, known_etags)
    return file


def _takes_page(request: ApiRequest) -> bool:
    """Return whether the request is that of a person's browser, not of a script or a program."""
    return MediaType.HTML in request.headers.get("accept", "")


def _to_response(file: StaticFile, status: int = 200) -> Response[Any]:
    return Response(
        file.content,
        status_code=304 if file.is_unchanged else status,
        media_type=file.media_type,
        headers={**SECURITY_HEADERS, **file.headers},
    )


def _say_not_built(request: ApiRequest, what: str, command: str) -> Response[Any]:
    page = NOT_BUILT.format(
        prefix=request.prefix, title=f"This is Tidemill, without {what}", what=what, command=command
    )
    headers = {**SECURITY_HEADERS, "cache-control": "no-store"}
    return Response(page, status_code=404, media_type=MediaType.HTML, headers=headers)


def _no_such_route() -> RequestError:
    return RequestError("there is no such route", code="route_not_found", status=404)
