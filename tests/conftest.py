"""Where tests keep their files, how often garbage is collected, and Hypothesis profiles.

`ci` is the default and always tries the same cases; `pytest --hypothesis-profile=soak` hunts for new ones.
"""

import gc
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30  # bytes, several times of what all tests together need
YOUNG_OBJECTS = 20_000  # more than a small node creates; Python's own number is 700

pytest_plugins = ["tests.postgres"]

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100, database=None)
settings.register_profile("soak", deadline=None, max_examples=10_000)
settings.load_profile("ci")


def _is_roomy(folder: Path) -> bool:
    """Return whether a folder has room for everything, programs too."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= ROOM and not found.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


# No test needs a disk that outlives the machine, and most would wait for it: kill -9 takes nothing that was written,
# wherever it was. A TMPDIR that is set counts.
if "TMPDIR" not in os.environ and _is_roomy(MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)  # processes read the one, and pytest has read it already


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and keep the collector away from them afterwards.

    Ten thousand tests and their modules are a million objects that live until the end. The collector would visit all
    of them again and again: that took a third of the time of all tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        gc.enable()
