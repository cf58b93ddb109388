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
from tidemill.packages.format.archive import write_files

FOLDER_PREFIX = "tidemill-packages-"
LOCK_FILE = ".lock"


class PackageCopies:
    """The copies of one process, in a folder that is made when the first is written. Any thread may call."""

    def __init__(self, parent_folder: Path | None = None) -> None:
        self._parent_folder = Path(tempfile.gettempdir()) if parent_folder is None else parent_folder
        self._process_folder: _ProcessFolder | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._removal_threads: set[threading.Thread] = set()

    def reserve(self, name: str) -> Path:
        """Return a folder for one copy, which is not there yet."""
        try:
            with self._lock:
                if self._process_folder is None:
                    self._parent_folder.mkdir(parents=True, exist_ok=True)
                    remove_stale_folders(self._parent_folder)
                    self._process_folder = _ProcessFolder(self._parent_folder)
                return self._process_folder.folder / f"{name}-{next(self._numbers)}"
        except OSError as error:
            raise OperationError(f"packages cannot be copied into {self._parent_folder}: {error}") from error

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Write a copy into its folder."""
        try:
            write_files(folder, files)
        except OSError as error:
            raise OperationError(f"a package cannot be copied into {folder}: {error}") from error

    def folders(self) -> list[Path]:
        """Return the folders of the copies that exist."""
        with self._lock:
            home = self._process_folder
        return [] if home is None else sorted(path for path in home.folder.iterdir() if path.is_dir())

    def remove(self, folder: Path) -> None:
        """Take a copy away; one that is not there is no error."""
        shutil.rmtree(folder, ignore_errors=True)

    def remove_in_background(self, folder: Path) -> None:
        """Take a copy away without keeping the caller: it may have thousands of files."""
        thread = threading.Thread(target=self.remove, args=[folder], name="tidemill copies")
        with self._lock:
            thread.start()
            self._removal_threads = {thread, *(one for one in self._removal_threads if one.is_alive())}

    def close(self) -> None:
        """Take all copies away, and the folder."""
        with self._lock:
            home, self._process_folder = self._process_folder, None
            leaving, self._removal_threads = self._removal_threads, set()
        for one in leaving:
            one.join()
        if home is not None:
            home.close()


class _ProcessFolder:
    """A folder that belongs to this process as long as it lives."""

    def __init__(self, parent_folder: Path) -> None:
        lock = None
        while lock is None:  # somebody may sweep in the moment before the lock is ours
            self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent_folder)))
            lock = _lock_file(self.folder / LOCK_FILE, os.O_CREAT)
        self._lock = lock

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def remove_stale_folders(parent_folder: Path) -> None:
    """Remove the folders of processes that are gone; those of others, and of other users, stay."""
    for folder in sorted(parent_folder.glob(f"{FOLDER_PREFIX}*")):
        with suppress(OSError):  # somebody else removes it, or it is none of ours
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = _lock_file(folder / LOCK_FILE)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock_file(path: Path, flags: int = 0) -> int | None:
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
