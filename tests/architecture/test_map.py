"""CONTRIBUTING.md has every folder of the code, and stays short."""

import re

from tests.architecture.sources import ROOT, modules

BEGINNING, END = "\nsrc/tidemill/\n", "\ntests/\n"
FOLDER = re.compile(r"^(?P<margin> +)(?P<names>[\w/, ]+/)(?= {2,}\S)")
LINES_LIMIT = 140


def test_every_folder_of_the_code_is_on_the_map() -> None:
    """Q-1: CONTRIBUTING.md has one line per folder, and none for a folder that is gone."""
    code = {module.path.parent.relative_to(ROOT / "src" / "tidemill").as_posix() for module in modules()} - {"."}
    assert sorted(folders_on_the_map()) == sorted(code)


def test_contributing_stays_short() -> None:
    """A newcomer reads CONTRIBUTING.md in one sitting."""
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < LINES_LIMIT


def folders_on_the_map() -> list[str]:
    """Return the folders that the tree in CONTRIBUTING.md names, as paths below the package."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(BEGINNING)[2].partition(END)[0]
    found: list[str] = []
    parents = [""]  # the folder that a line is in, by its depth
    for line in text.splitlines():
        match = FOLDER.match(line)
        if match:
            depth = len(match["margin"]) // 2
            paths = [parents[depth - 1] + name.strip() for name in match["names"].split(",")]
            parents[depth:] = [paths[-1]]
            found += [path.removesuffix("/") for path in paths]
    return found
