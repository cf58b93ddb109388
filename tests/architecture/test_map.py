"""The map of the code in CONTRIBUTING.md is complete: whoever looks for a module finds what it is for."""

import re

from tests.architecture.sources import ROOT, listing, modules

BEGINNING, END = "\nsrc/tidemill/\n", "\ntests/\n"
COLUMNS = re.compile(" {2,}")


def test_every_folder_of_the_code_is_on_the_map() -> None:
    """Q-1: and no folder that is gone."""
    assert sorted(the_map()) == sorted(the_code())


def test_where_the_map_names_modules_it_names_them_all() -> None:
    """Q-1: of a folder whose modules are all of one kind, it may say that instead."""
    code = the_code()
    offenders = [
        f"{folder or 'src/tidemill/'}: add {sorted(code[folder] - named)}, remove {sorted(named - code[folder])}"
        for folder, named in the_map().items()
        if named and named != code[folder]
    ]
    assert not offenders, listing(offenders)


def the_map() -> dict[str, set[str]]:
    """Return the folders on the map, each with the modules that are named there."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(BEGINNING)[2].partition(END)[0]
    found: dict[str, set[str]] = {"": set()}
    around = [""]  # the folders that a line is in, by its depth
    for line in text.splitlines():
        names = COLUMNS.split(line.strip())[0].split(", ")
        depth = (len(line) - len(line.lstrip())) // 2
        if names[0].endswith("/"):
            around[depth:] = [around[depth - 1] + names[-1]]
            found |= {around[depth - 1] + name: set() for name in names}
        else:  # a file stands by its depth, other modules below their folder
            inside = around[depth - 1] if names[0].endswith(".py") else around[-1]
            found[inside].update(name.removesuffix(".py") for name in names)
    return found


def the_code() -> dict[str, set[str]]:
    """Return the folders that hold code, each with its modules; what makes a folder a package goes without saying."""
    found: dict[str, set[str]] = {}
    for module in modules():
        parts = module.path.relative_to(ROOT / "src" / "tidemill").parts
        folder = "".join(f"{part}/" for part in parts[:-1])
        found.setdefault(folder, set()).update({module.path.stem} - ({"__init__"} if folder else set()))
    return found
