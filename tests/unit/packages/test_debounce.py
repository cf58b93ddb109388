"""Debouncing the scans of a folder: a package is reported when it has stopped changing."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tidemill.packages.format.archive import read_folder
from tidemill.packages.reconcile.debounce import Debouncer, DebounceTimes
from tidemill.packages.reconcile.scanner import FolderScan, FoundPackage


class Marks:
    """A scanner's write marks, by path."""

    def __init__(self, write_mark: Callable[[Path], object] = str) -> None:
        self.write_mark = write_mark


TIMES = DebounceTimes(quiet=2, removal=10, max_delay=20)  # the clock of these tests counts looks
EMPTY = hashlib.sha256(b"").hexdigest()


def seen(text: str, path: str = "market", name: str | None = "market") -> FoundPackage:
    """Return a package with one file; "" is a file that is empty."""
    digest = text or EMPTY
    return FoundPackage(path=Path(path), digest=f"all of {digest}", files={"a.py": digest}, read=read_folder, name=name)


def looks(*sightings: FoundPackage) -> FolderScan:
    """Return a look that found these."""
    return FolderScan(packages=sightings)


def texts(look: FolderScan) -> list[str]:
    """Return what was reported of the packages."""
    return [one.files["a.py"] for one in look.packages]


def test_the_first_look_is_reported_as_it_is() -> None:
    """A node that starts waits for no other look."""
    assert texts(Debouncer(TIMES, Marks()).debounce(looks(seen("one")), 0)) == ["one"]
    assert Debouncer(TIMES, Marks()).debounce(FolderScan(problem="no folder"), 0).problem == "no folder"


def test_a_change_is_reported_when_it_has_come_to_rest() -> None:
    """P-6: and until then what was there before, also of a package that is new."""
    debouncer = Debouncer(TIMES, Marks())
    debouncer.debounce(looks(), 0)
    assert texts(debouncer.debounce(looks(seen("half")), 1)) == []
    assert texts(debouncer.debounce(looks(seen("one")), 2)) == []
    told = debouncer.debounce(looks(seen("one")), 3)
    assert (texts(told), told.is_changing) == ([], True)
    told = debouncer.debounce(looks(seen("one")), 4)
    assert (texts(told), told.is_changing) == (["one"], False)


def test_what_never_comes_to_rest_is_reported_all_the_same() -> None:
    """But not while it is empty, however often that is looked at."""
    debouncer = Debouncer(TIMES, Marks())
    debouncer.debounce(looks(seen("0")), 0)
    told = [
        texts(debouncer.debounce(looks(seen("" if number % 2 else str(number))), number)) for number in range(1, 40)
    ]
    assert told[:22] == [["0"]] * 21 + [["22"]]
    assert all(text != [EMPTY] for text in told)


def test_what_is_written_again_and_again_has_not_come_to_rest() -> None:
    """A file may be empty at every look, and yet was whole in between."""
    marks = iter(range(100))
    debouncer = Debouncer(TIMES, Marks(lambda _: min(next(marks), 30)))
    debouncer.debounce(looks(seen("one")), 0)
    told = [texts(debouncer.debounce(looks(seen("")), now)) for now in range(1, 42)]
    assert told == [["one"]] * 40 + [[EMPTY]]


def test_a_package_that_moves_is_there_all_the_time() -> None:
    """P-6: its old place is given up when the new one has come to rest, neither sooner nor later."""
    debouncer = Debouncer(TIMES, Marks())
    debouncer.debounce(looks(seen("one")), 0)
    assert texts(debouncer.debounce(looks(), 1)) == ["one"]
    for now, path in [(9, "market"), (10, "market"), (11, "moved"), (12, "moved")]:
        told = debouncer.debounce(looks(seen("one", "moved")), now)
        assert [str(one.path) for one in told.packages] == [path]


def test_a_namesake_that_was_there_before_is_no_sign_of_a_move() -> None:
    """Else the second of two packages would take the place of one that is just saved."""
    debouncer = Debouncer(TIMES, Marks())
    both = looks(seen("one"), seen("two", "other"))
    debouncer.debounce(both, 0)
    assert texts(debouncer.debounce(looks(seen("two", "other")), 1)) == ["one", "two"]
    assert texts(debouncer.debounce(both, 2)) == ["one", "two"]


def test_a_manifest_that_is_damaged_is_reported_soon() -> None:
    """P-10: which files belong to it is not known then, so none of them is missed."""
    debouncer = Debouncer(TIMES, Marks())
    debouncer.debounce(looks(seen("one")), 0)
    damaged = FoundPackage(path=Path("market"), digest="damaged", files={"package.toml": "x"}, read=read_folder)
    assert [debouncer.debounce(looks(damaged), now).is_changing for now in (1, 2, 3)] == [True, True, False]


def test_a_folder_that_is_away_for_a_moment_is_no_trouble() -> None:
    """As when a deployment puts another one in its place."""
    debouncer = Debouncer(TIMES, Marks())
    debouncer.debounce(looks(seen("one")), 0)
    away = FolderScan(problem="there is no folder")
    told = debouncer.debounce(away, 1)
    assert (told.problem, texts(told), told.is_changing) == (None, ["one"], True)
    assert texts(debouncer.debounce(looks(seen("one")), 2)) == ["one"]
    assert [debouncer.debounce(away, now).problem for now in (3, 4, 5)] == [None, None, "there is no folder"]


STATES = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["", "x", "y"]), max_size=2)


@given(st.lists(st.tuples(STATES, st.integers(1, 12)), min_size=1, max_size=12))
def test_nothing_is_lost_and_nothing_is_kept_for_good(story: list[tuple[dict[str, str], int]]) -> None:
    """P-6: a package goes only if it was away for as long as it takes; and what stays as it is, is reported in time."""
    debouncer, now = Debouncer(TIMES, Marks()), 0
    there: dict[str, int] = {}  # when each package was last whole
    before: dict[str, str] = {}
    for state, lasting in story:
        whole = {name for name, text in state.items() if text}
        for _ in range(lasting):
            there |= dict.fromkeys(whole, now)
            told = debouncer.debounce(looks(*(seen(text, name, name) for name, text in state.items())), now)
            after = {str(one.path): one.files["a.py"] for one in told.packages}
            for name in before:
                if before[name] != EMPTY and after.get(name, EMPTY) == EMPTY:
                    assert now - there[name] >= TIMES.removal
            before, now = after, now + 1
        if lasting > TIMES.removal:
            assert before == {name: text or EMPTY for name, text in state.items()}
            assert not told.is_changing
