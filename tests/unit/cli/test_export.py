"""`tidemill export`: writes the files of a target, and overwrites nothing without being asked to."""

import json
import re
from pathlib import Path

import pytest

from tests.unit.cli.command_line import run
from tidemill import __version__

CHART_TEMPLATES = [
    *("NOTES.txt", "_helpers.tpl", "disruption-budget.yaml", "ingress.yaml", "kubernetes-executor.yaml"),
    *(
        "network-policy.yaml",
        "secret.yaml",
        "server.yaml",
        "service-account.yaml",
        "service-monitor.yaml",
        "service.yaml",
    ),
    *("worker-autoscaler.yaml", "worker.yaml"),
]
TARGETS = {
    "docker": ["Dockerfile"],
    "systemd": ["tidemill-worker@.service", "tidemill.service"],
    "helm": [
        "tidemill/Chart.yaml",
        *(f"tidemill/templates/{name}" for name in CHART_TEMPLATES),
        *("tidemill/values.schema.json", "tidemill/values.yaml"),
    ],
    "grafana": ["tidemill-dashboard.json"],
    "prometheus": ["tidemill-alerts.yaml"],
}
UNFILLED = re.compile(r"@[A-Z]+@")


def export(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command in this process; return its exit code."""
    return run(monkeypatch, "export", *words)


def files_below(folder: Path) -> list[str]:
    """Return the files of a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_written_into_a_new_folder(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-CLI: every file is complete, and `-o json` lists it."""
    folder = tmp_path / "new" / "folder"
    assert export(monkeypatch, target, "--to", str(folder), "-o", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed == [{"file": str(folder / name), "change": "created"} for name in TARGETS[target]]
    assert files_below(folder) == TARGETS[target]
    for path in folder.rglob("*.*"):
        assert not UNFILLED.search(path.read_text(encoding="utf-8"))


def test_the_current_folder_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """People see what was written, and what to do next."""
    monkeypatch.chdir(tmp_path)
    assert export(monkeypatch, "docker") == 0
    assert "tidemill[${EXTRAS}]==${TIDEMILL_VERSION}" in Path("Dockerfile").read_text()
    assert f"ARG TIDEMILL_VERSION={__version__}\n" in Path("Dockerfile").read_text()
    assert f"Next: docker build --tag tidemill:{__version__} ." in capsys.readouterr().out


def test_a_file_that_differs_is_replaced_only_with_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An edit of the user is not lost, and no other file is written then."""
    edited = tmp_path / "tidemill.service"
    edited.write_text("mine")
    assert export(monkeypatch, "systemd", "--to", str(tmp_path)) == 2
    assert f"{edited} would be overwritten, so nothing was written: add --force" in capsys.readouterr().err
    assert (files_below(tmp_path), edited.read_text()) == (["tidemill.service"], "mine")
    assert export(monkeypatch, "systemd", "--to", str(tmp_path), "--force", "-o", "json") == 0
    assert [one["change"] for one in json.loads(capsys.readouterr().out)] == ["created", "replaced"]
    assert export(monkeypatch, "systemd", "--to", str(tmp_path), "-o", "json") == 0
    assert [one["change"] for one in json.loads(capsys.readouterr().out)] == ["unchanged", "unchanged"]


def test_a_single_file_goes_to_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing else does: it can be piped into the next program."""
    monkeypatch.chdir(tmp_path)
    assert export(monkeypatch, "docker", "--to", "-") == 0
    printed = capsys.readouterr().out
    assert export(monkeypatch, "docker") == 0
    assert Path("Dockerfile").read_text() == printed
    assert export(monkeypatch, "systemd", "--to", "-") == 2
    assert "writes 2 files: name a folder with --to" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here a file is in the way."""
    (tmp_path / "taken").write_text("")
    assert export(monkeypatch, "docker", "--to", str(tmp_path / "taken")) == 2
    assert f"cannot write to {tmp_path / 'taken'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("helm", "--image", "tidemill:1.0"), "is not the name of an image"),
        (("helm", "--image", "My Image"), "is not the name of an image"),
        (("systemd", "--executable", "bin/tidemill"), "is relative: systemd needs the whole path"),
    ],
)
def test_a_word_that_would_break_a_file_is_refused(
    words: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is written."""
    assert export(monkeypatch, *words) == 2
    assert reason in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_units_name_the_installed_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment may be anywhere."""
    assert export(monkeypatch, "systemd", "--to", str(tmp_path), "--executable", "/srv/tm/bin/tidemill") == 0
    assert "\nExecStart=/srv/tm/bin/tidemill server " in (tmp_path / "tidemill.service").read_text()


def test_the_chart_names_the_image_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the version of Tidemill that exported it."""
    assert export(monkeypatch, "helm", "--to", str(tmp_path), "--image", "registry.example.com:5000/data/tidemill") == 0
    values = (tmp_path / "tidemill" / "values.yaml").read_text()
    assert '  repository: "registry.example.com:5000/data/tidemill"\n' in values
    assert f'appVersion: "{__version__}"' in (tmp_path / "tidemill" / "Chart.yaml").read_text()
