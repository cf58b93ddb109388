"""Writes both Python clients: the asynchronous one from the operations, and the blocking one from that.

Every module of `client/asynchronous` becomes one of `client/synchronous`: `async` and `await` are dropped, and names
are replaced by those of their blocking counterparts. `make api` runs it; `tests/architecture/test_client.py` fails
while the blocking client differs.
"""

import io
import subprocess
import sys
import tokenize
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "src" / "tidemill" / "client"
SOURCE: Path = CLIENT / "asynchronous"
TARGET: Path = CLIENT / "synchronous"
HANDLES = ROOT / "src" / "tidemill" / "api" / "handles.py"
"""The handles, which nodes have too."""

NAMES = {
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "aread": "read",
    "async_pause": "pause",
    "async_pusher": "pusher",
    "asynchronous": "synchronous",
    "asyncio": "sync",
}
"""The blocking counterparts. A name that begins with `Async` loses it."""
MODULES = {"tidemill.api.handles": "tidemill.client.synchronous.handles"}
"""The blocking counterparts of modules outside of the client."""
KEYWORDS = {"async", "await"}
NOTE = "# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.\n"
PACKAGE_DOCSTRING = '"""The blocking client, written from the asynchronous one by `make api`."""\n'


def render_modules() -> dict[Path, str]:
    """Return the text of every module of the blocking client by its path."""
    sources = [HANDLES, *sorted(SOURCE.glob("[!_]*.py"))]
    texts = {TARGET / path.name: NOTE + to_blocking(path.read_text("utf-8")) for path in sources}
    return {path: format_module(text) for path, text in texts.items()} | {TARGET / "__init__.py": PACKAGE_DOCSTRING}


def to_blocking(source: str) -> str:
    """Return the blocking version of a module."""
    for module, counterpart in MODULES.items():
        source = source.replace(f"from {module} import", f"from {counterpart} import")
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, following in reversed(list(pairwise(tokens))):
        if token.type != tokenize.NAME:
            continue
        row, begin = token.start
        end = following.start[1] if token.string in KEYWORDS else token.end[1]
        lines[row - 1] = lines[row - 1][:begin] + _replacement(token.string) + lines[row - 1][end:]
    return "".join(lines)


def _replacement(name: str) -> str:
    return "" if name in KEYWORDS else NAMES.get(name, name.removeprefix("Async"))


def format_module(text: str) -> str:
    """Return a module with sorted imports and lines of the right length."""
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        arguments = [*ruff, *command, "--stdin-filename", str(TARGET / "client.py"), "-"]
        text = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    from scripts.typed_client import PATH, render_module

    PATH.write_text(render_module(), encoding="utf-8")
    TARGET.mkdir(exist_ok=True)
    for path, text in render_modules().items():
        path.write_text(text, encoding="utf-8")
