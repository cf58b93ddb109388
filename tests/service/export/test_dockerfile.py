"""The Dockerfiles pass hadolint, and their image runs without root, stops on SIGTERM and knows whether it lives."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.service.export.tools import exported, run_tool
from tests.system.server_process import server_process

INSTRUCTION = re.compile(r"^(?P<name>[A-Z]+) (?P<rest>.*)$", re.MULTILINE)


def last_stage(dockerfile: str) -> dict[str, str]:
    """Return the last instruction of each name in the stage that becomes the image."""
    text = re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE).replace("\\\n", "")
    stage = text.rpartition("\nFROM ")[2]
    return {one["name"]: one["rest"].strip() for one in INSTRUCTION.finditer(stage)}


@pytest.fixture(params=["exported", "repository"])
def dockerfile(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The exported Dockerfile, and the one that builds an image of the clone."""
    folder = exported("docker", tmp_path) if request.param == "exported" else ROOT
    return (folder / "Dockerfile").read_text(encoding="utf-8")


def test_hadolint_finds_nothing(dockerfile: str) -> None:
    """S-Ops: not even advice."""
    checked = run_tool("hadolint", "--failure-threshold", "style", "-", given=dockerfile)
    assert (checked.returncode, checked.stdout) == (0, "")
    broken = run_tool("hadolint", "-", given=dockerfile.replace("USER 10001:10001", "RUN sudo true"))
    assert broken.returncode == 1  # the tool does look


def test_both_files_make_the_same_image(tmp_path: Path) -> None:
    """They differ in what they install, and in nothing else."""
    texts = [(folder / "Dockerfile").read_text(encoding="utf-8") for folder in (ROOT, exported("docker", tmp_path))]
    ours, theirs = (text.partition("\nFROM python:${PYTHON}-slim\n")[2] for text in texts)
    assert ours
    assert ours == theirs


def test_the_build_gets_what_the_package_is_made_of_and_nothing_else() -> None:
    """A .env file or a key in a clone does not get into a layer."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    first, *rest = [line for line in lines if not line.startswith("#")]
    assert first == "*"
    allowed = {line.removeprefix("!") for line in rest if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    sources = {one.split("/")[1] for one in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    built = {"docs", "mkdocs.yml", "scripts", "ui"}  # what becomes the pages that the server serves
    texts = {"pyproject.toml", "README.md", *project["project"]["license-files"]}
    assert allowed >= sources | built | texts


def test_the_image_runs_without_root(dockerfile: str) -> None:
    """Kubernetes sees by the number alone that it is not root."""
    stage = last_stage(dockerfile)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", stage["USER"])
    assert stage["VOLUME"] == stage["WORKDIR"] == "/var/lib/tidemill"


def test_the_image_gets_signals(dockerfile: str) -> None:
    """No shell is between Docker and the server: it gets SIGTERM itself."""
    stage = last_stage(dockerfile)
    assert stage["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(stage["ENTRYPOINT"]) == ["tidemill"]
    assert json.loads(stage["CMD"])[0] == "server"


def test_the_health_check_tells_a_live_server_from_a_dead_one(dockerfile: str, tmp_path: Path) -> None:
    """It runs as the image would run it, on the port of a real server."""
    program, *words = json.loads(last_stage(dockerfile)["HEALTHCHECK"].partition(" CMD ")[2])
    assert program == "python"
    with server_process(f"sqlite:///{tmp_path}/tidemill.db") as server:
        check = [
            sys.executable,
            *(word.replace("127.0.0.1:8080", server.url.removeprefix("http://")) for word in words),
        ]
        assert subprocess.run(check, check=False, capture_output=True).returncode == 0
        assert server.stop() == 0
    assert subprocess.run(check, check=False, capture_output=True).returncode == 1
