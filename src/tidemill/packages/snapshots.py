"""Copies of packages, from which they are imported: their authors may change what they have at any time.

All copies of a process lie in one folder of its own. A lock on a file in it says that the process lives; the system
lets go of it, whatever the process dies of, and the next one that comes by clears such a folder away.
"""

import fcntl
import itertools
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tidemill.kernel.errors import OperationError
from tidemill.packages.archive import write_files

PREFIX = "tidemill-packages-"
LOCK = ".lock"


class Snapshots:
    """The copies of one process, in a folder that is made when the first is written. Any thread may call."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = Path(tempfile.gettempdir()) if place is None else place
        self._home: _Home | None = None
        self._numbers = itertools.count(1)
        self._opening = threading.Lock()
        self._leaving: set[threading.Thread] = set()

    def reserve(self, name: str) -> Path:
        """Return a folder for one copy, which is not there yet."""
        try:
            with self._opening:
                if self._home is None:
                    self._place.mkdir(parents=True, exist_ok=True)
                    sweep(self._place)
                    self._home = _Home(self._place)
                return self._home.folder / f"{name}-{next(self._numbers)}"
        except OSError as error:
            raise OperationError(f"packages cannot be copied into {self._place}: {error}") from error

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Write a copy into its folder."""
        try:
            write_files(folder, files)
        except OSError as error:
            raise OperationError(f"a package cannot be copied into {folder}: {error}") from error

    def remove(self, folder: Path) -> None:
        """Take a copy away; one that is not there is no error."""
        shutil.rmtree(folder, ignore_errors=True)

    def remove_soon(self, folder: Path) -> None:
        """Take a copy away without keeping the caller: it may have thousands of files."""
        thread = threading.Thread(target=self.remove, args=[folder], name="tidemill copies")
        with self._opening:
            thread.start()
            self._leaving = {thread, *(one for one in self._leaving if one.is_alive())}

    def close(self) -> None:
        """Take all copies away, and the folder."""
        with self._opening:
            home, self._home = self._home, None
            leaving, self._leaving = self._leaving, set()
        for one in leaving:
            one.join()
        if home is not None:
            home.close()


class _Home:
    """A folder that belongs to this process as long as it lives."""

    def __init__(self, place: Path) -> None:
        lock = None
        while lock is None:  # somebody may sweep in the moment before the lock is ours
            self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=PREFIX, dir=place)))
            lock = _locked(self.folder / LOCK, os.O_CREAT)
        self._lock = lock

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def sweep(place: Path) -> None:
    """Remove the folders of processes that are gone; those of others, and of other users, stay."""
    for folder in sorted(place.glob(f"{PREFIX}*")):
        with suppress(OSError):  # somebody else removes it, or it is none of ours
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = _locked(folder / LOCK)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _locked(path: Path, flags: int = 0) -> int | None:
    """Return the descriptor of a file that is locked now, and still in its place; None if another process has it."""
    try:
        number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(number), path.stat()):
            return number
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(number)
        raise
    os.close(number)
    return None
