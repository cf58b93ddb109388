"""`tidemill`, and `python -m tidemill`: the command line."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]  # `python -m` searches this folder first: a `queue.py` in it would replace Python's own

import signal

_previous_handler = signal.getsignal(signal.SIGINT)
if _previous_handler is signal.default_int_handler:
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # until the command installs its own handler: Ctrl-C during the imports just ends the process

from tidemill.cli.main import main  # noqa: E402, imported after the signal handler is set

if _previous_handler is signal.default_int_handler:
    signal.signal(signal.SIGINT, _previous_handler)

__all__ = ["main"]

if __name__ == "__main__":
    main()
