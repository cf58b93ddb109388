"""What Python does after every fork is held back, and nothing else."""

import subprocess
import sys

HOLDING_BACK = """
import os, sys
from tidemill.engine.workflows.executors.forkserver.main import defer_fork_hooks
assert "threading" not in sys.modules, "somebody was faster"
register = os.register_at_fork
held = defer_fork_hooks()
assert os.register_at_fork is register
print(*(hooks["after_in_child"].__module__ for hooks in held))
print(defer_fork_hooks())
"""


def test_the_repairs_are_held_back() -> None:
    """docs/design, 0018: `import tidemill` does not bring what would register them before."""
    done = subprocess.run([sys.executable, "-c", HOLDING_BACK], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("threading logging\n[]\n", "")
