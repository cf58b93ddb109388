"""`tidemill attempt`: run one attempt, in a pod or a Ray actor."""

import logging
import os
import sys
from typing import TYPE_CHECKING

import typer

from tidemill.cli.arguments import LogFormatChoice, LogFormatOption, LogLevel, LogLevelOption
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.interrupts import HANDLED_SIGNALS

if TYPE_CHECKING:
    from tidemill.attempt.connection import AttemptEnvironment


def attempt(
    log_format: LogFormatOption = LogFormatChoice.JSON,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run one attempt of a task, in a pod or a Ray actor. An executor starts it; you do not.

    The environment names the server (TIDEMILL_SERVER_URL) and holds the token of the attempt (TIDEMILL_ATTEMPT_TOKEN,
    or TIDEMILL_ATTEMPT_TOKEN_FILE with the name of a file). The command fetches its order, runs the code, and reports
    back. It survives a restart of the server. SIGTERM stops the code: the executor decides what follows from the reason
    that the cluster gives.
    """
    # httpx imports its own command line where it can, with Rich and Pygments: a quarter of the start of an attempt.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    from tidemill.attempt.connection import take_environment
    from tidemill.telemetry.logs import writing_logs

    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log every heartbeat
    with writing_logs(log_format.value, log_level.number), exit_on_error():
        code = run_async(_run(take_environment(os.environ)))
    raise typer.Exit(code)


async def _run(environment: "AttemptEnvironment") -> int:
    """Run the attempt; return the exit code."""
    import asyncio
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from tidemill.attempt.attempt import Attempt
    from tidemill.attempt.connection import LeaseTimer, ServerConnection
    from tidemill.attempt.process import find_memory_events

    with TemporaryDirectory(prefix="tidemill-attempt-") as folder:
        async with ServerConnection(environment.url, environment.token, LeaseTimer()) as connection:
            attempt = Attempt(connection, Path(folder), find_memory_events())
            for number in HANDLED_SIGNALS:  # through the loop: no author code runs in this process
                asyncio.get_running_loop().add_signal_handler(number, attempt.terminate)
            return await attempt.run()
