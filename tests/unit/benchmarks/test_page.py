"""The page about speed shows the kept results."""

from msgspec import structs

from benchmarks.page import PAGE, describe, fill_page
from benchmarks.result_files import Result, read_results


def test_the_page_shows_the_kept_results() -> None:
    """Q-3: `python -m benchmarks.page` writes the tables; a page that was not written again is found."""
    text = PAGE.read_text()

    assert fill_page(text, read_results()) == text, "run `python -m benchmarks.page`"


def test_a_missed_bound_and_a_missing_peer_are_shown() -> None:
    """The page hides neither what Tidemill misses, nor that a library could not be compared."""
    results = read_results()
    peers, other = results["peers"], results["event_path"]
    without = {name: version for name, version in peers.figures["versions"].items() if name != "csp"}
    missed = [one | {"reached": False} for one in other.verdicts]

    text = fill_page(
        PAGE.read_text(),
        {
            "peers": structs.replace(peers, figures=peers.figures | {"versions": without}),
            "event_path": structs.replace(other, verdicts=missed),
        },
    )

    assert text.count("**missed**") == len(missed)
    assert "Not installed on this machine: csp." in text


def test_results_of_several_machines_are_all_named() -> None:
    """A reader sees which machines the figures come from."""
    results = read_results()
    other = structs.replace(results["event_path"].machine, processor="Another One")
    results["event_path"] = structs.replace(results["event_path"], machine=other)

    assert describe(other) in fill_page(PAGE.read_text(), results)


def test_what_a_library_cannot_do_is_said() -> None:
    """A missing figure is a word, not a gap."""
    peers = read_results()["peers"]
    rows = [{name: value for name, value in row.items() if name != "fan"} for row in peers.figures["workflows"]]
    changed: dict[str, Result] = {"peers": structs.replace(peers, figures=peers.figures | {"workflows": rows})}

    assert fill_page(PAGE.read_text(), changed).count("| cannot |") == len(rows)
