"""`tidemill graph` as a person would use it."""

import json
from pathlib import Path

import pytest

from tidemill.cli.main import main

SOUND = """
import tidemill as tm

@tm.passthrough
def feed(event: int) -> int:
    return event

numbers = tm.Reactor("numbers", [feed])
doubling = tm.Graph("doubling_graph", reactor=numbers)

@doubling.node
def double(feed: int) -> list[int]:
    return [feed, feed]
"""

UNSOUND = (
    SOUND
    + """
@doubling.node
def lost(fed: int) -> int:
    return fed

@doubling.node
def round_and_round(round_and_round: int) -> int:
    return 1
"""
)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr("sys.argv", ["tidemill", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one sound graph."""
    path = tmp_path / "sound_graph.py"
    path.write_text(SOUND)
    return path


def test_a_valid_file_passes_the_check(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check names what it checked."""
    assert run(monkeypatch, "graph", "check", str(file)) == 0
    assert capsys.readouterr().out == "1 graph and 1 reactor: no problems found\n"


def test_the_check_shows_every_problem_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-17: all definition problems are reported at once."""
    path = tmp_path / "unsound_graph.py"
    path.write_text(UNSOUND)
    assert run(monkeypatch, "graph", "check", str(path)) == 1
    misspelt, cyclic = capsys.readouterr().out.splitlines()
    assert misspelt.startswith(f"{path}:15: parameter 'fed'")
    assert "did you mean 'feed'?" in misspelt
    assert cyclic.startswith(f"{path}:19: nodes form a cycle")


@pytest.mark.parametrize("name", ["", ":doubling", ":doubling_graph"])
def test_the_code_of_a_graph_is_found_by_either_name(
    file: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the graph's own name, by its variable, or without a name if there is only one."""
    assert run(monkeypatch, "graph", "code", f"{file}{name}") == 0
    assert capsys.readouterr().out.startswith("def doubling_graph(inputs):")


def test_lists_are_json_for_programs(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-o json` prints what the table shows."""
    assert run(monkeypatch, "graph", "show", str(file), "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"node": "double", "takes": ["feed: int"], "returns": "list[int]", "terminal": True}
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["code", "nowhere.py"], "there is no file nowhere.py"),
        (["code", "{file}:doublin"], "did you mean 'doubling_graph'?"),
        (["list", "json"], "json declares no graph"),
    ],
)
def test_a_mistake_ends_with_one_clear_line(
    file: Path,
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No traceback for what a user can correct."""
    assert run(monkeypatch, "graph", *(argument.format(file=file) for argument in arguments)) == 2
    printed = capsys.readouterr().err
    assert complaint in printed
    assert "Traceback" not in printed


def test_a_file_that_cannot_be_imported_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The author's own line, not ours."""
    path = tmp_path / "broken_graph.py"
    path.write_text("import tidemill as tm\nreactor = tm.Reactr('r', [])\n")
    assert run(monkeypatch, "graph", "check", str(path)) == 1
    assert capsys.readouterr().out.startswith(f"{path}:2: importing it failed: AttributeError")
    for verb in ("list", "show", "code"):
        assert run(monkeypatch, "graph", verb, str(path)) == 2
        assert f"{path}:2: importing it failed: AttributeError" in capsys.readouterr().err


def test_of_several_graphs_one_must_be_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `tidemill run` says it of workflows."""
    file.write_text(SOUND + '\nother = tm.Graph("another_graph", reactor=numbers)\n')
    assert run(monkeypatch, "graph", "code", str(file)) == 2
    said = f"{file} has several graphs, name one: {file}:another_graph (there are another_graph, doubling_graph)\n"
    assert capsys.readouterr().err == said


def test_a_file_may_import_its_neighbours(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when its graph is compiled, which is after it was imported."""
    (file.parent / "graph_neighbour.py").write_text("class Answer(int): ...\n")
    late = "\ndef late() -> type:\n    import graph_neighbour\n    return graph_neighbour.Answer\n"
    file.write_text(SOUND.replace("-> list[int]", '-> "late()"') + late)
    for verb in ("check", "show", "code"):
        assert run(monkeypatch, "graph", verb, str(file)) == 0, capsys.readouterr()


def test_a_check_is_json_for_programs(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """server.md, `-o json` everywhere: whether it is sound, each problem with its place, what there is."""
    assert run(monkeypatch, "graph", "check", str(file), "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], found["problems"], found["graphs"]) == (True, [], ["doubling_graph"])
    file.write_text("import tidemill as tm\nreactor = tm.Reactr('r', [])\n")
    assert run(monkeypatch, "graph", "check", str(file), "-o", "json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], found["problems"][0]["file"], found["problems"][0]["line"]) == (False, str(file), 2)


def test_classes_are_named_alike_wherever_they_stand(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class within a list has no more of a name than a class alone."""
    file.write_text(SOUND.replace("-> list[int]", "-> list[Answer]").replace("@tm", "class Answer(int): ...\n@tm", 1))
    assert run(monkeypatch, "graph", "show", str(file)) == 0, capsys.readouterr()
    assert " list[Answer] " in capsys.readouterr().out
