"""The public surface changes only on purpose."""

from pathlib import Path

import tidemill

NAMES = Path(__file__).with_name("public_names.txt")
LIMIT = 60
UPDATE = r"""
The public names changed. If that is intended, say so in CHANGELOG.md and write the list again:
.venv/bin/python -c "import tidemill; print(*tidemill.__all__, sep='\n')" \
  > tests/architecture/public_names.txt
"""


def test_the_public_names_are_those_on_the_committed_list() -> None:
    """Adding or removing a name shows up in the diff of `public_names.txt`."""
    assert list(tidemill.__all__) == NAMES.read_text(encoding="utf-8").split(), UPDATE


def test_the_public_names_are_few_and_in_order() -> None:
    """At most 60 names, sorted, so that a reader finds one at a glance."""
    assert list(tidemill.__all__) == sorted(set(tidemill.__all__))
    assert len(tidemill.__all__) <= LIMIT


def test_every_public_name_is_there_and_documented() -> None:
    """`help(tidemill.X)` says something for each name in `__all__`."""
    silent = [name for name in tidemill.__all__ if not getattr(tidemill, name).__doc__]
    assert not silent
