"""Every surface knows the states of runs and task runs, and none knows a state that there is not."""

import re

import pytest

from tests.architecture.sources import ROOT
from tidemill.api.states import STATE_MARKS
from tidemill.cli.formatting import state_mark, state_style, state_text
from tidemill.storage.state_sets import STATE_FRAGMENTS
from tidemill.workflows.states import RunState, TaskState

RUNS, TASKS = set(RunState), set(TaskState)
STATES = {str(state) for state in (*RunState, *TaskState)}
ENDED = {str(state) for state in (*RunState, *TaskState) if state.is_terminal}
ENDED_RUNS = {str(state) for state in RunState if state.is_terminal}
SLOTS = {"late", "coming", "dropped"}
"""What the calendar shows of a slot without a run."""


def table(path: str, name: str) -> dict[str, str]:
    """Return the states that a table of the UI names, with what follows each of them."""
    text = (ROOT / "ui/src" / path).read_text(encoding="utf-8")
    found = re.search(rf"const {name}\b[^=]*=\s*(?:new Set\()?([\[{{].*?[\]}}])\)?;", text, re.DOTALL)
    assert found is not None, f"{path} has no table {name}"
    if found[1].startswith("{"):
        return dict(re.findall(r'([a-z_]+): "([^"]+)"', found[1]))
    return dict.fromkeys(re.findall(r'"([a-z_]+)"', found[1]), "")


def test_the_table_of_marks_has_every_state() -> None:
    """A state without a row cannot be shown."""
    assert set(STATE_MARKS) == STATES


@pytest.mark.parametrize("state", [*RunState, *TaskState])
def test_the_command_line_shows_every_state(state: RunState | TaskState) -> None:
    """A state of runs only, too: lists of runs show it."""
    assert state_text(state).plain == state
    assert state_text(state).style == state_style(state)
    assert len(state_mark(state).plain) == len(state_mark(state, is_ascii=True).plain) == 1
    assert state_mark(state, is_ascii=True).plain.isascii()


def test_pages_show_states_in_the_tones_of_the_table() -> None:
    """`tone.ts` has states of other things as well, such as nodes."""
    tones = table("design/tone.ts", "TONES")
    assert {state: tones.get(state) for state in STATES} == {state: mark.tone for state, mark in STATE_MARKS.items()}


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("design/StateMark/glyph.ts", "GLYPHS", STATES - {"none"}),
        ("design/StateBar/order.ts", "ORDER", STATES),
        ("pages/run/state.ts", "ENDED", ENDED),
        ("pages/runs/filter.ts", "RUN_STATES", RUNS),
        ("pages/backfills/Progress.tsx", "ENDED", ENDED_RUNS),
        ("pages/home/RunsOfDay.tsx", "STATES", ENDED_RUNS),
        ("pages/schedules/entries.ts", "IMPORTANCE", RUNS | SLOTS),
    ],
)
def test_tables_of_pages_have_every_state(path: str, name: str, expected: set[str]) -> None:
    """A state that a page leaves out is drawn without a sign, sorted first, or never counted."""
    assert set(table(path, name)) == expected


@pytest.mark.parametrize(
    ("path", "name"), [("pages/workflow/grid/GridStatus.tsx", "LEGEND"), ("pages/schedules/Legend.tsx", "STATES")]
)
def test_legends_name_known_states(path: str, name: str) -> None:
    """A legend explains the states that matter."""
    assert set(table(path, name)) <= STATES | SLOTS


def test_statements_can_name_every_state() -> None:
    """`tests/unit/storage/test_statements.py` checks that they name states in no other way."""
    names = {f"{kind}_{state}" for kind, states in (("run", RUNS), ("task", TASKS)) for state in states}
    assert names < set(STATE_FRAGMENTS)
