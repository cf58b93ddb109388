"""What `pip install tidemill` brings: a known number of distributions, and none that a server imports for nothing."""

import re
import subprocess
import sys
from importlib.metadata import requires

from packaging.requirements import Requirement

from tests.architecture.sources import ROOT

DISTRIBUTIONS = 38
"""With Tidemill itself. Raise it only with a reason in the changelog."""
UNUSED = ("faker", "polyfactory")
"""Requirements of requirements, which images and small machines may leave out."""
PROGRAM = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in UNUSED:
            raise ModuleNotFoundError(name=name)


sys.meta_path.insert(0, Missing())
import cel
from tidemill.server import app
from tidemill.server.openapi import openapi_document

assert cel.evaluate("1 + 1") == 2
assert b"/api/v1/runs" in openapi_document()
"""


def closure(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the distributions that an installation of one brings, by their normal names."""
    found: set[str] = set()
    waiting = [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in found:
            continue
        found.add(name)
        for text in requires(name) or ():
            one = Requirement(text)
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras or {""}):
                waiting.append((one.name, frozenset(one.extras)))
    return found


def test_an_installation_has_no_more_distributions_than_before() -> None:
    """F19: a requirement of a requirement counts as ours."""
    found = closure("tidemill")
    assert len(found) <= DISTRIBUTIONS, sorted(found)
    page = (ROOT / "docs" / "how-to" / "deploy-to-production.md").read_text(encoding="utf-8")
    assert f"brings {len(found) - 1} other distributions" in page


def test_a_server_needs_none_of_the_distributions_that_may_be_left_out() -> None:
    """F19: the images uninstall Faker, a quarter of the space."""
    program = f"UNUSED = {UNUSED!r}\n{PROGRAM}"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
