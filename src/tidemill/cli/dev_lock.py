"""One `tidemill dev` at a time: two on one store would run the same reactors, and each act on what both decide.

The lock is the system's own, on a file beside the store: it ends with the process that holds it, however that ends. So
the file is left where it is, and who finds one that nobody holds takes it. It says which process that is.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.kernel.errors import RequestError

LOCK_SUFFIX = ".lock"


@contextmanager
def hold_store_lock(store: str) -> Iterator[None]:
    """Hold the lock of a store for a while; RequestError if another process does. Only SQLite's files have one."""
    file = _lock_file(store)
    number = None if file is None else _open_lock_file(file)
    if file is None or number is None:
        yield
        return
    with os.fdopen(number, "r+") as lock:
        os.register_at_fork(after_in_child=lock.close)  # else what tasks fork, and leave behind, would hold it too
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _locked_error(file.with_suffix(""), lock.read(20).strip()) from None
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _lock_file(store: str) -> Path | None:
    scheme, _, rest = store.partition("://")
    file = Path(rest.removeprefix("/")).resolve()
    return file.with_name(f"{file.name}{LOCK_SUFFIX}") if scheme == "sqlite" and file.name else None


def _open_lock_file(file: Path) -> int | None:
    """Return a descriptor of the file; None where none can be made: then the store says more about it."""
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _locked_error(database: Path, pid: str) -> RequestError:
    process = f"process {pid}" if pid.isdecimal() else "another process"
    here = Path.cwd()
    place = database.relative_to(here) if database.is_relative_to(here) else database
    message = (
        f"{process} runs `tidemill dev` on {place} already, and two would act on everything twice: "
        "end that one, or name another store with --store"
    )
    return RequestError(message, code="already_running", status=409, pid=pid)
