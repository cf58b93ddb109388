"""The list of decisions is complete, and every decision has the same sections."""

import re

from tests.architecture.sources import ROOT, listing

DESIGN = ROOT / "docs" / "design"
ENTRY = re.compile(r"^\* \[(?P<title>.+)\]\((?P<file>.+)\)$", re.MULTILINE)
SECTIONS = ["Problem", "Decision", "Consequences", "Alternatives considered"]


def test_the_list_has_every_decision_once_with_its_title() -> None:
    """Decisions are grouped by area, and each area is in the order of numbers."""
    listed = [(entry["file"], f"# {entry['title']}") for entry in ENTRY.finditer(read("README.md"))]
    pages = [(page.name, read(page.name).partition("\n")[0]) for page in sorted(DESIGN.glob("[0-9]*.md"))]
    assert sorted(listed) == pages


def test_no_two_decisions_share_a_number() -> None:
    """Code and tests cite a decision by its number: `docs/design, 0018`. Numbers may be left out."""
    numbers = [int(page.name[:4]) for page in sorted(DESIGN.glob("[0-9]*.md"))]
    assert numbers == sorted(set(numbers))


def test_every_decision_has_the_four_sections() -> None:
    """Problem, decision, consequences, alternatives: in this order."""
    offenders = [
        page.name
        for page in sorted(DESIGN.glob("[0-9]*.md"))
        if re.findall(r"^## (.+)$", read(page.name), re.MULTILINE) != SECTIONS
    ]
    assert not offenders, listing(offenders)


def read(name: str) -> str:
    """Return the text of a page."""
    return (DESIGN / name).read_text(encoding="utf-8")
