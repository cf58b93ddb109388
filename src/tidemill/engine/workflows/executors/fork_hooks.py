"""What Python does in every process that was just forked, held back in one that forks often.

After a fork, `threading` and `logging` put their locks right in the new process, for another thread may have held one
in that moment. This touches a third of all that a short task touches, and copies it. A process with one thread has
nothing to put right. So a fork server holds these repairs back before it imports anything else, and puts them in place
only if the author's module has started a thread. Each of its children does, for a task may have threads when it forks.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

REPAIRERS = "threading", "logging"

Hooks = dict[str, Callable[[], Any]]
"""What `os.register_at_fork` is given."""


def hold_back() -> list[Hooks]:
    """Import who would repair, and return what they want done at every fork: nothing of it is done yet.

    Those that were imported before have had their way.
    """
    held: list[Hooks] = []
    register = os.register_at_fork
    os.register_at_fork = lambda **hooks: held.append(hooks)
    try:
        for name in REPAIRERS:
            importlib.import_module(name)
    finally:
        os.register_at_fork = register
    return held
