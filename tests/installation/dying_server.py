"""Servers that kill themselves at a chosen point of a request with an idempotency key.

The process forks a server for each line on its standard input: the number of transactions since the request came after
which it dies, or "none" for a server that lives. It prints the pid of the server, what the server prints, and "dead" in
the end.
"""

import os
import signal
import sys
from typing import Any

from tidemill.cli.main import main
from tidemill.engine.access.idempotency import IdempotentRequests
from tidemill.server import app  # noqa: F401  # imported once, before the forks
from tidemill.storage.postgres.database import Database as PostgresDatabase
from tidemill.storage.sqlite import database as sqlite_database


class Death:
    """The end of this process after some transactions."""

    def __init__(self, transactions: int) -> None:
        self._left: float = float("inf")
        begin, write = IdempotentRequests.begin, sqlite_database.run_in_transaction
        transact = PostgresDatabase._transact

        async def begin_to_count(*arguments: Any) -> Any:
            self._left = transactions
            self._die_if_due()
            return await begin(*arguments)

        def write_or_die(*arguments: Any, **named: Any) -> Any:
            result = write(*arguments, **named)
            self._count()
            return result

        async def transact_or_die(*arguments: Any) -> Any:
            result = await transact(*arguments)
            self._count()
            return result

        IdempotentRequests.begin = begin_to_count
        sqlite_database.run_in_transaction = write_or_die
        PostgresDatabase._transact = transact_or_die

    def _count(self) -> None:
        self._left -= 1
        self._die_if_due()

    def _die_if_due(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run_servers(options: list[str]) -> None:
    """Fork a server for each line, one after another."""
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            if line != "none\n":
                Death(int(line))
            sys.argv = [
                "tidemill",
                "server",
                "--port",
                "0",
                "-o",
                "json",
                "--no-auth",
                "--log-level",
                "error",
                *options,
            ]
            main()
        print(child, flush=True)
        os.waitpid(child, 0)
        print("dead", flush=True)


if __name__ == "__main__":
    run_servers(sys.argv[1:])
