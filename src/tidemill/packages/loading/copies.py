"""Copies of packages, from which they are imported, since their authors may change the originals at any time.

Each process has one folder for all its copies. A lock on a file in it shows that the process lives. The system
releases the lock when the process dies, and the next process that makes a copy removes the folder.
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


def _temporary_folder() -> Path:
    """Return the folder for temporary files; a container that is read-only may have none."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        message = "packages need a folder for their copies, and none can be written: mount one at /tmp, or set TMPDIR"
        raise OperationError(message) from error


class PackageCopies:
    """Manages the copies of one process, in a folder that is made with the first copy. Any thread may call."""

    def __init__(self, parent_folder: Path | None = None) -> None:
        self._parent_folder = _temporary_folder() if parent_folder is None else parent_folder
        self._process_folder: _ProcessFolder | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._removal_threads: set[threading.Thread] = set()

    def reserve(self, name: str) -> Path:
        """Return a path for one copy, which does not exist yet."""
        try:
            with self._lock:
                if self._process_folder is None:
                    self._parent_folder.mkdir(parents=True, exist_ok=True)
                    remove_stale_folders(self._parent_folder)
                    self._process_folder = _ProcessFolder(self._parent_folder)
                return self._process_folder.folder / f"{name}-{next(self._numbers)}"
        except OSError as error:
            raise OperationError(f"packages cannot be copied to {self._parent_folder}: {error}") from error

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Write a copy into its folder."""
        try:
            write_files(folder, files)
        except OSError as error:
            raise OperationError(f"a package cannot be copied to {folder}: {error}") from error

    def folders(self) -> list[Path]:
        """Return the folders of the copies that exist."""
        with self._lock:
            home = self._process_folder
        return [] if home is None else sorted(path for path in home.folder.iterdir() if path.is_dir())

    def remove(self, folder: Path) -> None:
        """Remove a copy; a missing one is not an error."""
        shutil.rmtree(folder, ignore_errors=True)

    def remove_in_background(self, folder: Path) -> None:
        """Remove a copy on a thread, since it may have thousands of files."""
        thread = threading.Thread(target=self.remove, args=[folder], name="tidemill copies")
        with self._lock:
            thread.start()
            self._removal_threads = {thread, *(one for one in self._removal_threads if one.is_alive())}

    def close(self) -> None:
        """Remove all copies and the folder."""
        with self._lock:
            folder, self._process_folder = self._process_folder, None
            threads, self._removal_threads = self._removal_threads, set()
        for thread in threads:
            thread.join()
        if folder is not None:
            folder.close()


class _ProcessFolder:
    """A folder that belongs to this process while it lives."""

    def __init__(self, parent_folder: Path) -> None:
        lock = None
        while lock is None:  # another process may remove the folder before it is locked
            self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent_folder)))
            lock = _lock_file(self.folder / LOCK_FILE, os.O_CREAT)
        self._lock = lock

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def remove_stale_folders(parent_folder: Path) -> None:
    """Remove the folders of dead processes; those of living ones and of other users stay."""
    for folder in sorted(parent_folder.glob(f"{FOLDER_PREFIX}*")):
        with suppress(OSError):  # another process removes it, or it belongs to another user
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            lock = _lock_file(folder / LOCK_FILE)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock_file(path: Path, flags: int = 0) -> int | None:
    """Lock a file and return its descriptor; None if it is gone or another process has locked it."""
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
