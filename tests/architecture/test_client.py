"""The blocking client is the asynchronous one, written without `await`."""

import re

from scripts.blocking_client import TARGET, render_modules, to_blocking
from tests.architecture.sources import ROOT
from tidemill.client import Client
from tidemill.client.synchronous.handles import AccumulatorHandle, ReactorHandle, Run

SURFACES = (Client, Run, ReactorHandle, AccumulatorHandle)


def test_the_blocking_client_is_written_from_the_asynchronous_one() -> None:
    """Run `make api` after a change of `client/asynchronous`."""
    written = {path: path.read_text(encoding="utf-8") for path in sorted(TARGET.glob("*.py"))}
    assert written == render_modules()


def test_only_code_is_replaced() -> None:
    """Texts and comments keep their words; `async` and `await` go with the blank after them."""
    source = 'async def f(c: AsyncClient) -> None:\n    """Await it."""\n    await c.aclose()  # await\n'
    assert to_blocking(source) == 'def f(c: Client) -> None:\n    """Await it."""\n    c.close()  # await\n'


def test_the_reference_lists_every_method() -> None:
    """And no other one: the page is `docs/reference/client.md`."""
    text = (ROOT / "docs" / "reference" / "client.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(?:push\.)?(\w+)\(", text)) - {"Client"}
    offered = {name for one in SURFACES for name in dir(one) if not name.startswith("_")}
    assert listed - {"push", "flush"} == {name for name in offered if callable_in_any(name)} - {"push"}


def callable_in_any(name: str) -> bool:
    """Return whether a name is a method of the client or of a handle."""
    return any(callable(getattr(one, name, None)) for one in SURFACES)
