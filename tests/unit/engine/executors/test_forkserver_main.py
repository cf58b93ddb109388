"""The fork server's entry point defers the at-fork hooks of Python's own modules, and no others."""

import subprocess
import sys

DEFER_TWICE = """
import os, sys
from tidemill.engine.workflows.executors.forkserver.main import defer_fork_hooks
assert "threading" not in sys.modules, "its hooks are registered already"
register = os.register_at_fork
deferred = defer_fork_hooks()
assert os.register_at_fork is register
print(*(hooks["after_in_child"].__module__ for hooks in deferred))
print(defer_fork_hooks())
"""


def test_at_fork_hooks_are_deferred() -> None:
    """docs/design, 0018: `import tidemill` imports no module that registers them earlier."""
    done = subprocess.run([sys.executable, "-c", DEFER_TWICE], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("threading logging\n[]\n", "")
