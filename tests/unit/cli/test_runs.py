"""`tidemill runs`, `tidemill workflow` and `tidemill backfill`, on a store that no node has open."""

import asyncio
import json
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.unit.cli.command_line import REPORT, in_zone, run

Monkey = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]

NO_NODE = "no node is running on this store: start one\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one workflow."""
    path = tmp_path / "report_flow.py"
    path.write_text(REPORT)
    return path


@pytest.fixture
def store(file: Path, tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> str:
    """A store with a run that succeeded, and then one that failed; the commands know it from the environment."""
    address = f"sqlite:///{tmp_path / 'tidemill.db'}"
    for rows, code in [("2", 0), ("15", 1)]:
        arguments = ["--day", "2026-01-01", "--rows", rows, "--store", address, "-q"]
        assert run(monkeypatch, "run", str(file), *arguments) == code
    monkeypatch.setenv("TIDEMILL_STORE", address)
    capsys.readouterr()
    return address


def listed(monkeypatch: Monkey, capsys: Captured, *filters: str) -> list[dict[str, Any]]:
    """Return runs as the list gives them to programs."""
    assert run(monkeypatch, "runs", "list", "-o", "json", *filters) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def failed(store: str, monkeypatch: Monkey, capsys: Captured) -> str:
    """The id of the run that failed."""
    return str(listed(monkeypatch, capsys)[0]["id"])


def damage(store: str, statement: str) -> None:
    """Change something in a store behind everybody's back."""
    connection = sqlite3.connect(store.removeprefix("sqlite:///"))
    with connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()


def shown(monkeypatch: Monkey, capsys: Captured, id: str) -> dict[str, Any]:
    """Return a run as it is shown to programs."""
    assert run(monkeypatch, "runs", "show", id, "-o", "json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.usefixtures("store")
def test_runs_are_listed_newest_first(monkeypatch: Monkey, capsys: Captured) -> None:
    """And filtered by workflow, state and number."""
    assert [one["state"] for one in listed(monkeypatch, capsys)] == ["failed", "success"]
    assert [one["state"] for one in listed(monkeypatch, capsys, "--state", "success")] == ["success"]
    assert [one["state"] for one in listed(monkeypatch, capsys, "--limit", "1")] == ["failed"]
    assert listed(monkeypatch, capsys, "--workflow", "other") == []
    assert run(monkeypatch, "runs", "list", "--tenant", "other") == 0
    assert capsys.readouterr().out == "no runs\n"


def test_a_run_is_shown_with_what_failed_and_notes(failed: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """W-16: the tries with their errors; the timeline on demand."""
    assert run(monkeypatch, "runs", "note", failed, "looked at it") == 0
    assert run(monkeypatch, "runs", "note", failed, "odd rows", "--task", "clean") == 0
    said = [f"run {failed} has a note", f"task 'clean' of run {failed} has a note"]
    assert capsys.readouterr().out.splitlines() == said
    assert run(monkeypatch, "runs", "show", failed) == 0
    printed = capsys.readouterr().out
    cause = "task 'clean' failed (element 13): ValueError: no thirteen"
    assert printed.startswith(f"daily_report failed: {cause}  (run {failed})\nmanual, version ")
    assert "params: day='2026-01-01', rows=15" in printed
    assert "clean[13]" in printed
    assert "note: looked at it\nnote on clean: odd rows\n" in printed
    assert "timeline" not in printed
    assert run(monkeypatch, "runs", "show", failed, "--timeline") == 0
    assert "upstream_failed" in capsys.readouterr().out.partition("timeline")[2]


def test_as_json_a_run_has_all_that_is_kept(failed: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """Tasks, attempts, events, notes."""
    found = shown(monkeypatch, capsys, failed)
    assert found["tasks"]["clean"]["mapped"][13]["error"]["message"] == "no thirteen"
    assert len([one for one in found["attempts"] if one["task"] == "clean"]) == 15
    assert found["events"][-1]["after"] == "failed"
    assert (found["id"], found["note"], found["notes"]) == (failed, None, {})
    assert not {"run", "key", "run_id"} & {
        name for part in ("attempts", "events") for one in found[part] for name in one
    }


@pytest.mark.parametrize("part", [slice(None), slice(-8, None), slice(0, -4)])
def test_a_part_of_the_id_is_enough(failed: str, part: slice, monkeypatch: Monkey, capsys: Captured) -> None:
    """Its beginning or its end, as long as only one run has it."""
    assert shown(monkeypatch, capsys, failed[part])["id"] == failed


def test_a_part_that_several_have_is_refused(failed: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """Guessing would be wrong half of the time."""
    assert run(monkeypatch, "runs", "cancel", failed[:3]) == 2
    assert f"2 runs have an id that begins or ends with '{failed[:3]}'" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("verb", ["show", "cancel", "retry"])
def test_an_unknown_run_is_one_line(verb: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """And exit code 2."""
    assert run(monkeypatch, "runs", verb, "nowhere") == 2
    assert capsys.readouterr().err == "there is no run 'nowhere'\n"


def test_why_explains(failed: str, file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """W-17."""
    assert run(monkeypatch, "runs", "why", failed, "publish") == 0
    assert capsys.readouterr().out == "it cannot run because of 'clean'\n"
    assert run(monkeypatch, "runs", "why", failed, "clean") == 0
    place = f"{file}:{REPORT.split('raise')[0].count(chr(10)) + 1}"
    expected = [
        f"element 13: it has failed: ValueError: no thirteen ({place})",
        "elements 0 to 12, 14: it has succeeded",
    ]
    assert capsys.readouterr().out.splitlines() == expected
    assert run(monkeypatch, "runs", "why", failed, "clean[13]") == 0
    assert capsys.readouterr().out.splitlines() == expected[:1]
    assert run(monkeypatch, "runs", "why", failed, "clean[15]") == 2
    assert "task 'clean' has 15 elements" in capsys.readouterr().err
    assert run(monkeypatch, "runs", "why", failed, "publsh") == 2
    assert "did you mean 'publish'?" in capsys.readouterr().err


def test_what_failed_is_queued_again_and_cancelled(failed: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """With a preview that changes nothing; the leader on the store continues the run."""
    assert run(monkeypatch, "runs", "retry", failed, "--preview") == 0
    assert capsys.readouterr().out == "would rerun: clean (1 of 15), publish\n"
    assert shown(monkeypatch, capsys, failed)["state"] == "failed"
    assert run(monkeypatch, "runs", "retry", failed, "--from", "extract") == 0
    assert capsys.readouterr().out == f"will rerun: extract, clean, publish\n{NO_NODE}"
    assert shown(monkeypatch, capsys, failed)["state"] == "queued"
    assert run(monkeypatch, "runs", "cancel", failed, "--reason", "no need") == 0
    found = shown(monkeypatch, capsys, failed) if not capsys.readouterr().err else {}
    assert (found["state"], found["reason"]) == ("cancelled", "no need")
    assert found["events"][-1]["actor"] == "local"
    assert run(monkeypatch, "runs", "cancel", failed) == 2
    assert "has ended already: cancelled" in capsys.readouterr().err


def test_cleared_tasks_run_again_where_a_node_is(
    failed: str, file: Path, store: str, monkeypatch: Monkey, capsys: Captured
) -> None:
    """The next node with the workflow reruns the cleared tasks."""
    assert run(monkeypatch, "runs", "clear", failed, "publish", "clean") == 0
    assert capsys.readouterr().out == f"will rerun: clean (15 of 15), publish\n{NO_NODE}"
    assert shown(monkeypatch, capsys, failed)["state"] == "queued"
    assert run(monkeypatch, "run", str(file), "--day", "2026-01-02", "--store", store, "-q") == 0
    capsys.readouterr()
    assert shown(monkeypatch, capsys, failed)["tasks"]["clean"]["mapped"][0]["attempts"] == 2


def answered(monkeypatch: Monkey, capsys: Captured, *arguments: str) -> dict[str, Any]:
    """Return what a command tells programs."""
    assert run(monkeypatch, *arguments, "-o", "json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_command_answers_programs(failed: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """server.md, `-o json` everywhere: with the full id, for any given part of it."""
    part = failed[-8:]
    assert answered(monkeypatch, capsys, "runs", "why", part, "publish") == {
        "id": failed,
        "task": "publish",
        "reasons": ["it cannot run because of 'clean'"],
    }
    version = shown(monkeypatch, capsys, failed)["version"]
    again = {"run": failed, "preview": True, "reruns": ["clean", "publish"], "reused": ["extract"], "version": version}
    again |= {"missing_tasks": [], "note": None, "live_nodes": 0}
    some, every = ({"elements": {"clean": {"reruns": number, "total": 15}}} for number in (1, 15))
    assert answered(monkeypatch, capsys, "runs", "retry", part, "--preview") == again | some
    assert answered(monkeypatch, capsys, "runs", "clear", part, "clean", "--preview") == again | every
    assert answered(monkeypatch, capsys, "runs", "retry", part) == again | some | {"preview": False}
    noted = {"id": failed, "task": None, "text": "odd"}
    assert answered(monkeypatch, capsys, "runs", "note", part, "odd") == noted
    assert answered(monkeypatch, capsys, "runs", "note", part, "", "--task", "clean")["task"] == "clean"
    cancelled = {"id": failed, "state": "cancelled", "reason": "no need"}
    assert answered(monkeypatch, capsys, "runs", "cancel", part, "--reason", "no need") == cancelled
    for verb, paused in [("pause", True), ("resume", False)]:
        changed = answered(monkeypatch, capsys, "workflow", verb, "daily_report")
        assert (changed["name"], changed["paused"]) == ("daily_report", paused)


def test_an_unreadable_run_is_reported_and_can_be_cancelled(
    failed: str, store: str, monkeypatch: Monkey, capsys: Captured
) -> None:
    """W-5: the version of a run, and what a task returned; everything else is shown."""
    monkeypatch.setenv("COLUMNS", "200")
    assert run(monkeypatch, "runs", "retry", failed) == 0
    damage(store, "UPDATE attempts SET value = x'c1' WHERE task = 'extract'")
    capsys.readouterr()
    assert run(monkeypatch, "runs", "show", failed) == 0
    assert "UnreadableOutput: DecodeError: MessagePack data" in capsys.readouterr().out
    damage(store, "UPDATE workflow_versions SET spec = x'c1'")
    assert run(monkeypatch, "runs", "show", failed) == 0
    assert "daily_report queued: version " in (printed := capsys.readouterr().out)
    assert "load that version again, or cancel the run  (run " in printed
    assert "cannot be read" in shown(monkeypatch, capsys, failed)["reason"]
    assert run(monkeypatch, "runs", "why", failed, "publish") == 0
    assert capsys.readouterr().out.startswith("the run is quarantined: version ")
    assert run(monkeypatch, "runs", "cancel", failed) == 0
    assert capsys.readouterr().out == f"run {failed} is cancelled\n"
    assert shown(monkeypatch, capsys, failed)["state"] == "cancelled"


def test_logs_are_printed(failed: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """As lines for people, and as JSON lines for programs; of a task that has ended, following is the same."""
    for more in ([], ["--follow"]):
        assert run(monkeypatch, "runs", "logs", failed, "extract", *more) == 0
        logged, printed = capsys.readouterr().out.splitlines()
        assert logged.endswith(" #1 info    reading 2026-01-01")
        assert printed.endswith(" #1 stdout  printed by the task")
    assert run(monkeypatch, "runs", "logs", failed, "extract", "-o", "json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["message"] for line in lines] == ["reading 2026-01-01", "printed by the task"]
    assert run(monkeypatch, "runs", "logs", failed, "clean[12]") == 0
    assert capsys.readouterr().out == ""
    for name in ("clean", "clean[13]"):
        assert run(monkeypatch, "runs", "logs", failed, name) == 0
        assert capsys.readouterr().out.endswith('    raise ValueError("no thirteen")\nValueError: no thirteen\n')
    assert run(monkeypatch, "runs", "logs", failed, "extrakt") == 2
    assert "did you mean 'extract'?" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_looking_creates_no_store(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """A misspelt address is an error, and creates nothing."""
    missing = tmp_path / "missing.db"
    for command in (["list"], ["cancel", "x"]):
        assert run(monkeypatch, "runs", *command, "--store", f"sqlite:///{missing}") == 2
        said = capsys.readouterr().err
        assert said.startswith(f"there is no file {missing}: check the address")
        assert said.endswith("or create it with `tidemill db upgrade`\n")
    assert not missing.exists()


# -- another version


def test_a_run_continues_with_fixed_code(
    failed: str, file: Path, store: str, monkeypatch: Monkey, capsys: Captured
) -> None:
    """W-19: `retry` says that the run is pinned and what to do, and `--latest` does it."""
    before = shown(monkeypatch, capsys, failed)["version"]
    fixed = file.with_name("fixed_flow.py")
    fixed.write_text(REPORT.replace('raise ValueError("no thirteen")', "return 13"))
    assert run(monkeypatch, "run", str(fixed), "--day", "2026-01-02", "--store", store, "-q") == 0
    capsys.readouterr()
    after = listed(monkeypatch, capsys)[0]["version"]
    assert run(monkeypatch, "runs", "retry", failed, "--preview") == 0
    names, pinned = capsys.readouterr().out.splitlines()
    assert names == "would rerun: clean (1 of 15), publish"
    assert pinned == (
        f"run {failed} is pinned to version {before} of 'daily_report'; {after} is newer: unless a node has {before} "
        f"loaded it waits; `tidemill runs retry {failed} --latest` continues it with {after}"
    )
    assert run(monkeypatch, "runs", "retry", failed) == 0
    assert capsys.readouterr().out.splitlines()[1] == pinned
    assert run(monkeypatch, "runs", "why", failed, "clean[13]") == 0
    assert capsys.readouterr().out.startswith(
        f"run {failed} waits for version {before} of 'daily_report', which no node"
    )
    assert run(monkeypatch, "runs", "cancel", failed) == 0
    capsys.readouterr()
    assert run(monkeypatch, "runs", "clear", failed, "clean", "--latest", "--preview") == 0
    assert capsys.readouterr().out == f"would rerun, with version {after}: clean (15 of 15), publish\n"
    assert run(monkeypatch, "runs", "retry", failed, "--latest", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["note"], found["reruns"]) == (after, None, ["clean", "publish"])
    assert shown(monkeypatch, capsys, failed)["version"] == after


# -- workflows


@pytest.mark.usefixtures("store")
def test_workflows_are_listed_paused_and_resumed(monkeypatch: Monkey, capsys: Captured) -> None:
    """What the store knows of them."""
    expected = {"name": "daily_report", "loaded": False, "active_runs": 0}
    for verb, paused in [("resume", False), ("pause", True), ("pause", True), ("resume", False)]:
        assert run(monkeypatch, "workflow", verb, "daily_report") == 0
        capsys.readouterr()
        assert run(monkeypatch, "workflow", "list", "-o", "json") == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert row | expected | {"paused": paused} == row
        assert row["last_run"]["state"] == "failed"
        assert datetime.fromisoformat(row["last_run"]["created_at"]).tzinfo is not None
    assert run(monkeypatch, "workflow", "pause", "daily_reprt") == 2
    assert "did you mean 'daily_report'?" in capsys.readouterr().err


def test_the_check_of_a_valid_file_names_its_contents(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """As `tidemill graph check` does."""
    assert run(monkeypatch, "workflow", "check", str(file)) == 0
    assert capsys.readouterr().out == "1 workflow and 0 triggers: no problems found\n"
    found = answered(monkeypatch, capsys, "workflow", "check", str(file))
    assert (found["sound"], found["workflows"], found["triggers"]) == (True, ["daily_report"], [])


def test_the_check_shows_every_problem_with_file_and_line(
    tmp_path: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    """Of all workflows at once."""
    path = tmp_path / "unsound_flow.py"
    path.write_text(REPORT + "\n@report.task\ndef lost(publsh: str) -> None: ...\n")
    assert run(monkeypatch, "workflow", "check", str(path)) == 1
    (problem,) = capsys.readouterr().out.splitlines()
    assert problem.startswith(f"{path}:37: ")
    assert "did you mean 'publish'?" in problem


def test_a_check_reads_the_types_of_the_same_file(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """A misspelt field of a condition is found before anything is loaded."""
    path = tmp_path / "typo.py"
    path.write_text(
        "import tidemill as tm\n"
        "class Book(tm.Boundary):\n    bid: float\n"
        "@tm.passthrough\ndef book(event: Book) -> Book:\n    return event\n"
        'market = tm.Reactor("market", [book])\n'
        'maker = tm.Graph("maker", reactor=market)\n'
        "@maker.node\ndef place(book: Book) -> Book:\n    return book\n"
        'flow = tm.Workflow("flow", triggers=[\n'
        '    tm.on_firing("market", when="payload.book.bd > 1"),\n'
        '    tm.on_output("maker", "plce"),\n'
        "])\n"
        "@flow.task\ndef act() -> None: ...\n"
    )
    assert run(monkeypatch, "workflow", "check", str(path)) == 1
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert "typo.py:13: on_firing('market', when='payload.book.bd > 1'): payload.book has no field 'bd'" in text
    assert "typo.py:14: on_output('maker', 'plce'): graph 'maker' has no node 'plce' (did you mean 'place'?)" in text


def test_a_declaration_that_is_refused_at_import_has_its_place_once(
    tmp_path: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    """Its own: that the import failed of it is nothing to correct."""
    path = tmp_path / "misspelt_flow.py"
    path.write_text(REPORT.replace('@report.task(each="extract")', "@report.task(retries=3)"))
    assert run(monkeypatch, "workflow", "check", str(path)) == 1
    (problem,) = capsys.readouterr().out.splitlines()
    assert problem.startswith(f"{path}:26: task 'clean': a task has no option 'retries' (did you mean 'retry'?)")


def test_a_check_of_a_file_that_is_not_there_was_not_done(monkeypatch: Monkey, capsys: Captured) -> None:
    """Which is not the same as a file that is unsound."""
    assert run(monkeypatch, "workflow", "check", "nowhere.py") == 2
    assert capsys.readouterr().err == "there is no file nowhere.py\n"


# -- backfill


@pytest.mark.usefixtures("store")
def test_a_backfill_makes_the_missing_runs(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """W-15: a preview that does nothing, then only what is missing, or everything again."""
    backfill = ["backfill", "start", str(file), "--from", "2026-01-01", "--to", "2026-01-03"]
    assert run(monkeypatch, *backfill, "--preview") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("2026-01-01 06:00 UTC") or "(2026-01-01 06:00 UTC)" in printed[0]
    assert printed[-1] == "3 runs of 'daily_report' would be started"
    assert len(listed(monkeypatch, capsys)) == 2
    assert run(monkeypatch, *backfill) == 0
    assert "3 runs of 'daily_report' started" in capsys.readouterr().out
    made = listed(monkeypatch, capsys, "--state", "queued")
    assert [one["params"]["day"] for one in made] == ["2026-01-03", "2026-01-02", "2026-01-01"]
    assert run(monkeypatch, *backfill, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["slots"] == []
    assert run(monkeypatch, *backfill, "--all", "-o", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 3


@pytest.mark.usefixtures("store")
def test_the_days_of_a_backfill_are_those_of_the_schedule(
    file: Path, tmp_path: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    """A day begins and ends in the schedule's time zone, and slots are shown in both time zones."""
    expected = "2026-01-02 04:30 UTC (2026-01-01 23:30 EST)"
    path = tmp_path / "zoned_flow.py"
    path.write_text(REPORT.replace('"0 6 * * *"', '"30 23 * * *", timezone="America/New_York"'))
    days = ["--from", "2026-01-01", "--to", "2026-01-01"]
    with in_zone("UTC"):
        assert run(monkeypatch, "backfill", "start", str(path), *days, "--preview") == 0
        assert capsys.readouterr().out.splitlines()[0] == expected
        assert (
            run(monkeypatch, "backfill", "start", str(path), "--from", "2026-01-02T04:30Z", *days[2:], "--preview") == 0
        )
        assert capsys.readouterr().out.splitlines()[0] == expected


@pytest.mark.usefixtures("store")
def test_slots_that_are_yet_to_come_are_left_to_the_schedule(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """W-15: a typo in --to takes no slot away from the schedule; and a day is a day however it is written."""
    far = ["backfill", "start", str(file), "--from", "2999-01-01", "--to", "29990103"]
    assert run(monkeypatch, *far, "--preview") == 0
    said = "0 runs of 'daily_report' would be started; 3 slots of the range are in the future\n"
    assert capsys.readouterr().out == said
    assert run(monkeypatch, *far) == 0
    assert capsys.readouterr().out == "no run of 'daily_report' was started; 3 slots of the range are in the future\n"
    assert run(monkeypatch, *far, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["future"] == 3
    assert run(monkeypatch, "backfill", "start", str(file), "--from", "20260101", "--to", "20260101", "--preview") == 0
    assert capsys.readouterr().out.endswith("1 run of 'daily_report' would be started\n")
    nothing = ["--from", "2026-01-01T07:00", "--to", "2026-01-01T08:00"]
    assert run(monkeypatch, "backfill", "start", str(file), *nothing) == 0
    assert capsys.readouterr().out == "no run of 'daily_report' was started; there is no slot in this range\n"


@pytest.mark.usefixtures("store")
def test_a_backfill_before_the_start_of_a_schedule_says_so(
    tmp_path: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    """A preview of nothing names the reason."""
    path = tmp_path / "late_flow.py"
    path.write_text(
        "from datetime import UTC, datetime\nimport tidemill as tm\n"
        "late = tm.Workflow('late', schedule=tm.Cron('0 6 * * *', start=datetime(2026, 3, 1, tzinfo=UTC)))\n"
        "@late.task\ndef a() -> None: pass\n"
    )
    days = ["--from", "2026-01-01", "--to", "2026-01-03"]
    assert run(monkeypatch, "backfill", "start", str(path), *days, "--preview") == 0
    said = (
        "0 runs of 'late' would be started; there is no slot in this range: the schedule starts on 2026-03-01 00:00 UTC"
    )
    assert capsys.readouterr().out == f"{said}\n"


@pytest.mark.usefixtures("store")
def test_a_backfill_is_cancelled(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """W-15: by its id."""
    days = ["--from", "2026-01-01", "--to", "2026-01-03"]
    assert run(monkeypatch, "backfill", "start", str(file), *days, "-o", "json") == 0
    made = json.loads(capsys.readouterr().out)["id"]
    assert run(monkeypatch, "backfill", "cancel", made) == 0
    assert capsys.readouterr().out == f"backfill {made} is cancelled\n"
    assert len(listed(monkeypatch, capsys, "--state", "cancelled")) == 3
    assert run(monkeypatch, "backfill", "cancel", made, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["runs"] == {"cancelled": 3}
    assert run(monkeypatch, "backfill", "list") == 0
    assert "3 cancelled" in capsys.readouterr().out
    assert run(monkeypatch, "backfill", "show", made) == 0
    assert "state: cancelled\n" in capsys.readouterr().out
    assert run(monkeypatch, "backfill", "cancel", "missing") == 2
    assert capsys.readouterr().err == "there is no backfill 'missing'\n"


def test_a_backfill_that_could_not_run_is_refused(
    store: str, file: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    """At an executor that no node has, as by `tidemill run`, or of a workflow that is paused (cloacina.md 131)."""
    days = ["--from", "2026-01-01", "--to", "2026-01-03"]
    assert run(monkeypatch, "backfill", "start", str(file), *days, "--executor", "subproces", "--preview") == 2
    assert capsys.readouterr().err == "there is no executor 'subproces' (did you mean 'subprocess'?)\n"
    assert run(monkeypatch, "backfill", "start", str(file), *days, "--executor", "nope") == 2
    assert capsys.readouterr().err == "there is no executor 'nope'; there are in_process, subprocess\n"
    assert run(monkeypatch, "workflow", "pause", "daily_report") == 0
    for command in (["backfill", "start", str(file), *days], ["run", str(file), "--day", "2026-01-01", "-q"]):
        capsys.readouterr()
        assert run(monkeypatch, *command, "--store", store) == 2
        assert "`tidemill workflow resume daily_report`" in capsys.readouterr().err
    assert len(listed(monkeypatch, capsys)) == 2


@pytest.mark.usefixtures("store")
def test_a_range_that_is_none_is_refused(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """One line and exit code 2."""
    assert run(monkeypatch, "backfill", "start", str(file), "--from", "yesterday", "--to", "2026-01-03") == 2
    assert "'yesterday' is not a time: give a day such as 2026-01-31" in capsys.readouterr().err
    assert run(monkeypatch, "backfill", "start", str(file), "--from", "2026-01-03T07:00", "--to", "2026-01-01") == 2
    assert "is before start" in capsys.readouterr().err


# -- another database, and a node at work


async def test_commands_reach_the_runs_of_a_node_at_work(
    postgres: PostgresServer, monkeypatch: Monkey, capsys: Captured
) -> None:
    """On PostgreSQL too: shown while it runs, followed, cancelled; the node then stops the code."""
    url, stopped = await postgres.fresh_database(), asyncio.Event()
    flow = tm.Workflow("flow")

    @flow.task
    async def endless(ctx: tm.Context) -> None:
        ctx.log.info("here I am")
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.set()

    def call(*arguments: str) -> int:
        return run(monkeypatch, *arguments, "--store", url)

    async with asyncio.timeout(50), tm.Node(url, load=[flow]) as node:
        started = await node.start("flow")
        async for glance in started.watch():
            if glance.lines:
                break
        assert await asyncio.to_thread(call, "runs", "list", "--state", "running") == 0
        assert await asyncio.to_thread(call, "runs", "why", started.id, "endless") == 0
        assert await asyncio.to_thread(call, "doctor") == 0
        assert await asyncio.to_thread(call, "workflow", "list") == 0
        assert await asyncio.to_thread(call, "runs", "cancel", started.id[-8:]) == 0
        assert await asyncio.to_thread(call, "runs", "logs", started.id, "endless", "--follow") == 0
        assert (await started.wait()).state is tm.RunState.CANCELLED
        await stopped.wait()
    printed = capsys.readouterr().out
    assert "it is running at '" in printed
    assert "1 active run: nothing wrong" in printed
    assert "#1 info    here I am\n" in printed
