"""The page about deployment: its commands exist, and its values install."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from tests.architecture.sources import ROOT
from tests.service.export.chart import only, render
from tests.unit.cli.command_line import run
from tidemill.cli.main import COMMANDS, app

PAGE = (ROOT / "docs" / "how-to" / "deploy-to-production.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(?P<language>sh|yaml)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """Return the blocks of the page in one language."""
    return [one["text"] for one in BLOCK.finditer(PAGE) if one["language"] == language]


def commands() -> Iterator[list[str]]:
    """Yield the words of each command of Tidemill on the page, also of those that others run."""
    for line in "".join(blocks("sh")).replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        for number, (program, command) in enumerate(pairwise(words), start=1):
            if program.rpartition("/")[2] == "tidemill" and command in COMMANDS:
                yield words[number:]


def test_the_page_has_commands_of_each_kind() -> None:
    """So that the next test looks at something."""
    assert {tuple(words[:2]) for words in commands()} >= {("export", "docker"), ("export", "helm"), ("key", "create")}


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_a_command_of_the_page_has_these_options(words: list[str]) -> None:
    """Q-3."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "get_command"):
        name, *words = words
        command = command.get_command(None, name)
        assert command, name
    options = {word for one in command.params for word in one.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options


def test_the_values_of_the_page_install_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-3: with the chart that the page exports, where it exports it."""
    monkeypatch.chdir(tmp_path)
    (export,) = [words for words in commands() if words[:2] == ["export", "helm"]]
    assert run(monkeypatch, *export) == 0
    (values,) = [one for one in map(yaml.safe_load, blocks("yaml")) if "store" in one]
    (install,) = re.findall(r"helm install (\S+) (\S+) --values", PAGE)
    manifests = render(Path(install[1]), values, release=install[0])
    for name in re.findall(r"deployment/(\S+)", PAGE):
        assert only(manifests, "Deployment", name)
    assert only(manifests, "HorizontalPodAutoscaler")["spec"]["maxReplicas"] == 20
