"""The reference matches the code: settings, metrics, health, error codes, public names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidemill
from tests.architecture.sources import ROOT, listing, modules
from tidemill.engine.event_feed.feed import NODE_EVENT_TYPES, STORED_EVENT_TYPES
from tidemill.engine.workflows.executors.remote.unit_results import MEANINGS
from tidemill.graphs.health import ACCUMULATOR_TRANSITIONS, REACTOR_TRANSITIONS
from tidemill.graphs.result import NodeError
from tidemill.kernel import errors
from tidemill.kernel.settings import Settings
from tidemill.server.exposition import METRICS
from tidemill.server.live.closing import CloseCode
from tidemill.telemetry.metrics import shown_names
from tidemill.workflows.rules import RULES
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS

REFERENCE = ROOT / "docs" / "reference"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<rest>.+) \|$", re.MULTILINE)
TRANSITIONS = re.compile(r"^\| from \| to \|\n\|---\|---\|\n(?P<rows>(?:\|.+\n)+)", re.MULTILINE)
USUAL_STATUS = 400


def page(name: str) -> str:
    """Return the text of a reference page."""
    return (REFERENCE / name).read_text(encoding="utf-8")


def rows(text: str) -> list[tuple[str, list[str]]]:
    """Return the table rows that begin with a name in code style: the name, and the other cells."""
    return [(row["name"], row["rest"].split(" | ")) for row in ROW.finditer(text)]


def test_every_setting_is_listed_once_with_its_default() -> None:
    """The page shows each default as an operator writes it."""
    listed = [(name, default_in_words(name, cells[0])) for name, cells in rows(page("settings.md"))]
    assert dict(listed) == {name: getattr(Settings(), name) for name in Settings.__struct_fields__}
    assert len(listed) == len(dict(listed))


def default_in_words(name: str, cell: str) -> Any:
    """Return the value of a default on the page."""
    if cell == "unset":
        return None
    if cell == "none":
        return {}
    return getattr(Settings.read({name: cell.strip("`")}, environment={}), name)


def test_every_metric_is_listed_once() -> None:
    """The page explains what `node.metrics()` returns."""
    metrics, _, _ = page("metrics.md").partition("## Reasons for drops")
    assert sorted(name for name, _ in rows(metrics)) == sorted(shown_names(METRICS))


def test_every_event_of_the_feed_is_listed_with_its_meaning() -> None:
    """The page lists where each type comes from, and says the same as the code."""
    row = re.compile(r"^\| `(?P<name>[\w.]+)` \| (?P<source>store|node) \| (?P<meaning>.+) \|$", re.MULTILINE)
    listed = {one["name"]: (one["source"], one["meaning"]) for one in row.finditer(page("events.md"))}
    stored = {name: ("store", meaning) for name, meaning in STORED_EVENT_TYPES.items()}
    assert listed == stored | {name: ("node", meaning) for name, meaning in NODE_EVENT_TYPES.items()}


def test_the_transitions_of_health_are_those_of_the_engine() -> None:
    """The first table is of accumulators, the second of reactors."""
    assert listed_transitions("health.md") == [ACCUMULATOR_TRANSITIONS.table, REACTOR_TRANSITIONS.table]


def test_the_transitions_of_workflows_are_those_of_the_engine() -> None:
    """The first table is of task runs, the second of runs."""
    assert listed_transitions("workflows.md") == [TASK_TRANSITIONS.table, RUN_TRANSITIONS.table]


def listed_transitions(name: str) -> list[dict[str, set[str]]]:
    """Return the tables of transitions on a page: the states that may follow each state."""
    tables = [rows(table["rows"]) for table in TRANSITIONS.finditer(page(name))]
    return [{state: set(re.findall(r"`(\w+)`", cells[0])) for state, cells in table} for table in tables]


def test_every_rule_is_explained() -> None:
    """The page lists every value of `rule=`."""
    assert not [name for name in RULES if f"`{name}`" not in page("workflows.md")]


def test_every_code_of_a_request_error_is_listed_once_with_its_status() -> None:
    """The page lists exactly the codes that are raised."""
    listed = [(code, int(cells[0])) for code, cells in rows(page("errors.md"))]
    assert sorted(listed) == sorted(set(raised_codes()))


def raised_codes() -> Iterator[tuple[str, int]]:
    """Yield the code and status of every call in the tree with a `code` argument, and of every NotFoundError."""
    for module in modules():
        for node in ast.walk(module.tree):
            given = {one.arg: one.value for one in node.keywords} if isinstance(node, ast.Call) else {}
            code, status = given.get("code"), given.get("status", ast.Constant(USUAL_STATUS))
            if isinstance(code, ast.Constant):
                assert isinstance(status, ast.Constant), (
                    f"{module.where(status.lineno)} gives a status that is no number"
                )
                yield str(code.value), int(str(status.value))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "NotFoundError":
                kind = node.args[0]
                assert isinstance(kind, ast.Constant), f"{module.where(kind.lineno)} gives a kind that is no text"
                yield f"{kind.value!s}_not_found", 404


def test_every_close_code_is_listed() -> None:
    """The page lists the codes that the server closes with, and the one of the protocol for large frames."""
    listed = re.findall(r"^\| (\d{4}) \|", page("websocket.md"), re.MULTILINE)
    assert sorted(map(int, listed)) == sorted([*(set(CloseCode) - {CloseCode.NORMAL}), 1009])


@pytest.mark.parametrize("error", [errors.IllegalTransitionError, NodeError, *errors.TidemillError.__subclasses__()])
def test_every_error_is_in_the_tree(error: type[Exception]) -> None:
    """The drawn tree is complete."""
    assert error.__name__ in page("errors.md")


def test_every_public_name_is_explained_somewhere_in_the_reference() -> None:
    """Every public name appears as `tm.name` on some page."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(REFERENCE).glob("*.md")))
    known = set(re.findall(r"\btm\.(\w+)", text))
    assert not (silent := sorted(set(tidemill.__all__) - known)), listing(silent)


def test_every_exit_code_of_an_attempt_is_listed_with_its_meaning() -> None:
    """Clusters show these codes."""
    listed = re.findall(r"^\| (\d+) \| (.+) \|$", page("executors.md"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in listed} == MEANINGS
