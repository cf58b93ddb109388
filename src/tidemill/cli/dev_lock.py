"""Locks a store for one `tidemill dev`: two on one store would run the same reactors, and act on everything twice.

The lock is an flock on a file next to the store. It ends with the process that holds it, however that ends, so the file
is never removed: the next process locks it again. It contains the id of the process.
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
    """Hold the lock of a store; raise RequestError if another process holds it. Only SQLite stores have one."""
    file = _lock_file(store)
    descriptor = None if file is None else _open_lock_file(file)
    if file is None or descriptor is None:
        yield
        return
    with os.fdopen(descriptor, "r+") as lock:
        os.register_at_fork(
            after_in_child=lock.close
        )  # else processes that tasks fork and leave behind would hold it too
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
    """Return a descriptor of the file; None if it cannot be created: opening the store then fails with the reason."""
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _locked_error(database: Path, pid: str) -> RequestError:
    process = f"process {pid}" if pid.isdecimal() else "another process"
    folder = Path.cwd()
    path = database.relative_to(folder) if database.is_relative_to(folder) else database
    message = (
        f"{process} already runs `tidemill dev` on {path}, and two would act on everything twice: "
        "stop that one, or name another folder or store"
    )
    return RequestError(message, code="already_running", status=409, pid=pid)
