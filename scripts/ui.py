"""Build and check the web UI: `python -m scripts.ui build|check|format|types`."""

import json
import sys
from pathlib import Path

from scripts.node_tools import run_npm

ROOT = Path(__file__).parent.parent
UI = ROOT / "ui"
TYPES = UI / "src/api/schema.d.ts"
ERROR = {"default": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}}}


def build() -> None:
    """Build the UI into the folder from which the server serves it."""
    _install()
    run_npm(UI, "run", "--silent", "build", "--", "--logLevel", "warn")


def check() -> None:
    """Check style and types of the UI against the API as it is now, and run its unit tests."""
    types()
    run_npm(UI, "run", "--silent", "check")


def format_code() -> None:
    """Put the code of the UI into its standard form."""
    _install()
    run_npm(UI, "run", "--silent", "format")


def types() -> None:
    """Write the TypeScript types of the API from its OpenAPI document."""
    _install()
    document = ROOT / "build/openapi.json"
    document.parent.mkdir(exist_ok=True)
    document.write_bytes(_document_of_answers())
    run_npm(UI, "run", "--silent", "types", "--", str(document), "--output", str(TYPES))


def _document_of_answers() -> bytes:
    """Return the document with one error for all routes: the client has one class of them."""
    from tidemill.server.openapi import openapi_document  # the build of a wheel has no server to import

    document = json.loads(openapi_document())
    for path in document["paths"].values():
        for operation in path.values():
            answers = operation["responses"]
            operation["responses"] = {status: answer for status, answer in answers.items() if status < "300"} | ERROR
    return json.dumps(document).encode()


def _install() -> None:
    installed, wanted = UI / "node_modules/.package-lock.json", UI / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < wanted.stat().st_mtime:
        # Not `npm ci`: it refuses a lock file made where the registry has the programs of one platform only.
        run_npm(UI, "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error")


if __name__ == "__main__":
    {"build": build, "check": check, "format": format_code, "types": types}[sys.argv[1]]()
