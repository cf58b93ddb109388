"""`python -m tidemill` is the command line."""

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is somebody to handle it: an import has no say in it
    from tidemill.cli.main import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
