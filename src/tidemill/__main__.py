"""`tidemill`, and `python -m tidemill`: the command line."""

import signal

_previous_handler = signal.getsignal(signal.SIGINT)
if _previous_handler is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is somebody to handle it: an import has no say in it

from tidemill.cli.main import main  # noqa: E402, as Ctrl-C is to end it without a traceback

if _previous_handler is signal.default_int_handler:
    signal.signal(signal.SIGINT, _previous_handler)

__all__ = ["main"]

if __name__ == "__main__":
    main()
