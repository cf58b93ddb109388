"""The numbers that tests name in their docstrings are explained on a page."""

from scripts.contracts import PAGE, ROW, cited_folders, cited_in, render_page
from tests.architecture.sources import listing

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_number_that_a_test_names_is_on_the_page() -> None:
    """A reader of the test looks it up there."""
    listed = [row[0] for row in ROW.findall(TEXT)]
    missing = [f"{number} in {', '.join(sorted(where))}" for number, where in cited_folders().items()]
    assert not (lost := [one for one in missing if one.partition(" ")[0] not in listed]), listing(lost)
    assert len(listed) == len(set(listed))


def test_every_number_on_the_page_is_named_by_a_test() -> None:
    """A contract that no test names is not known to hold."""
    assert not (idle := [row[0] for row in ROW.findall(TEXT) if row[0] not in cited_folders()]), listing(idle)


def test_the_page_of_contracts_is_current() -> None:
    """Q-3: `make map` writes the folders again."""
    assert render_page(TEXT) == TEXT, "run `make map`"


def test_numbers_are_found_in_docstrings() -> None:
    """Contracts, failures, and behaviours in lists."""
    assert cited_in("G-4, F9: a P-256 key") >= {"G-4", "F9"}
    assert cited_in("Behaviours 57, 58 and 63, for one package.") == {"57", "58", "63"}
