"""Writes docs/reference/python/: every public class and function, with signatures and docstrings of the source.

`make map` runs it; `tests/architecture/test_generated_pages.py` fails while a page differs from the code.
"""

import ast
import enum
import importlib
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import tidemill
from scripts.source_definitions import (
    Attribute,
    Method,
    own_bodies,
    read_attributes,
    read_constructor,
    read_function,
    read_methods,
    read_values,
)
from tidemill import sources, testing

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "python"
NOTE = "`make map` writes this page from the code."


class Page(NamedTuple):
    """A page of the reference, and the modules whose names it lists."""

    title: str
    introduction: str
    prefix: str
    names: dict[str, str]
    """The module of each name."""


PAGES = {
    "tidemill.md": Page(
        "The module tidemill",
        "Everything that authors of graphs and workflows need: `import tidemill as tm`. [Declaring](../declaring.md),\n"
        "[running](../running.md) and [workflows](../workflows.md) explain the arguments.",
        "tm.",
        dict.fromkeys(tidemill.__all__, "tidemill"),
    ),
    "client.md": Page(
        "The module tidemill.client",
        "The client of a server, for programs: `from tidemill.client import Client`. [Python client](../client.md)\n"
        "is the overview; `AsyncClient` has the same methods with `await`.",
        "",
        {
            "Client": "tidemill.client",
            "Run": "tidemill.client.synchronous.handles",
            "ReactorHandle": "tidemill.client.synchronous.handles",
            "AccumulatorHandle": "tidemill.client.synchronous.handles",
            "EventPusher": "tidemill.client.pusher",
            "AsyncClient": "tidemill.client",
            "AsyncRun": "tidemill.api.handles",
            "AsyncReactorHandle": "tidemill.api.handles",
            "AsyncAccumulatorHandle": "tidemill.api.handles",
            "AsyncEventPusher": "tidemill.client.async_pusher",
        },
    ),
    "sources.md": Page(
        "The module tidemill.sources",
        "The interface of sources, and the sources beside Kafka and NATS: `tm.sources`.",
        "tm.sources.",
        dict.fromkeys(sources.__all__, "tidemill.sources"),
    ),
    "testing.md": Page(
        "The module tidemill.testing",
        "A node on a virtual clock, with faults on demand: `tm.testing`. [Test a graph](../../how-to/test-a-graph.md)\n"
        "and [test a workflow](../../how-to/test-a-workflow.md) show it at work.",
        "tm.testing.",
        dict.fromkeys(testing.__all__, "tidemill.testing"),
    ),
    "testing-sources.md": Page(
        "The module tidemill.testing.sources",
        "The contract suite of sources: `tm.testing.sources`.",
        "tm.testing.sources.",
        dict.fromkeys(["SourceUnderTest", "checks"], "tidemill.testing.sources"),
    ),
}


def render_pages() -> dict[Path, str]:
    """Return the text of each page by its path."""
    return {FOLDER / name: _render(page) for name, page in PAGES.items()}


def _render(page: Page) -> str:
    found = {name: getattr(importlib.import_module(module), name) for name, module in page.names.items()}
    summaries = [_index_row(page.prefix + name, definition) for name, definition in found.items()]
    head = [f"# {page.title}", "", f"{page.introduction} {NOTE}", "", "| name | summary |", "|---|---|", *summaries]
    public = frozenset(one for one in (*found.values(), *_public_classes()) if inspect.isclass(one))
    entries = [_entry(page.prefix + name, definition, public - {definition}) for name, definition in found.items()]
    return "\n".join([*head, "", "\n\n".join(entries), ""])


def _public_classes() -> list[type]:
    return [one for one in (getattr(tidemill, name) for name in tidemill.__all__) if inspect.isclass(one)]


def _index_row(name: str, definition: Any) -> str:
    anchor = re.sub(r"[^\w -]", "", _title(name, definition).lower()).replace(" ", "-")
    summary, _, _ = (definition.__doc__ or "").partition("\n\n")
    return f"| [`{name}`](#{anchor}) | {_cell(summary)} |"


def _title(name: str, definition: Any) -> str:
    """Return the heading; the word makes links to `tm.trigger` and to `tm.Trigger` differ."""
    return f"`{name}`" if inspect.isclass(definition) else f"Function `{name}`"


def _entry(name: str, definition: Any, public: frozenset[type]) -> str:
    if not inspect.isclass(definition):
        method = read_function(inspect.unwrap(definition))
        return "\n\n".join([f"## {_title(name, definition)}", _code(method.signatures, name), method.description])
    bodies = list(own_bodies(definition, public & set(definition.__mro__[1:])))
    parts = [
        f"## {_title(name, definition)}",
        _code(read_constructor(bodies), name),
        inspect.cleandoc(definition.__doc__ or ""),
        *(f"It has everything that `tm.{base.__name__}` has." for base in definition.__mro__[1:2] if base in public),
        _values(bodies) if issubclass(definition, enum.Enum) else "",
        _table(read_attributes(bodies)),
        *(_method_entry(name, method) for method in read_methods(bodies)),
    ]
    return "\n\n".join(filter(None, parts))


def _method_entry(owner: str, method: Method) -> str:
    title = f"### `{owner.rpartition('.')[2]}.{method.name}`"
    return "\n\n".join([title, _code(method.signatures, method.name), method.description])


def _code(signatures: tuple[str, ...], name: str) -> str:
    if not signatures:
        return ""
    short = name.rpartition(".")[2]
    lines = "\n".join(one if one.removeprefix("async ").startswith(short) else f"{short}{one}" for one in signatures)
    return f"```py\n{lines}\n```"


def _values(bodies: list[list[ast.stmt]]) -> str:
    return "Values: " + ", ".join(f"`{value}`" for value in read_values(bodies)) + "."


def _table(attributes: list[Attribute]) -> str:
    if not attributes:
        return ""
    rows = [f"| `{one.name}` | {_cell_code(one)} | {_cell(one.description)} |" for one in attributes]
    return "\n".join(["| attribute | type | meaning |", "|---|---|---|", *rows])


def _cell_code(attribute: Attribute) -> str:
    default = f" = {attribute.default}" if attribute.default else ""
    return "`" + f"{attribute.type}{default}".replace("|", "\\|") + "`" if attribute.type else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in render_pages().items():
        path.write_text(text, encoding="utf-8")
