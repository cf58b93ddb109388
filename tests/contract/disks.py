"""Real disk faults: a full disk, a broken disk, and a read-only one."""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE = (1536 + 256) * 1024  # the schema takes some, in the file and in its log
NOBODY = 65534  # an ordinary user on every system


class SmallDisk:
    """A file system in memory with room for one megabyte, and a schema."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Fill the disk."""
        with self._ballast.open("wb", buffering=0) as ballast:
            for size in (4096, 1):  # the last bytes count as well
                while _has_room_for(ballast.fileno(), size):
                    pass

    def free(self) -> None:
        """Free the space again."""
        self._ballast.unlink()


@contextmanager
def small_disk(folder: Path, size: int = SIZE) -> Iterator[SmallDisk | None]:
    """Mount a small disk on a folder; None where mounting is not permitted."""
    if os.geteuid() != 0 or not _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):
        yield None
        return
    try:
        yield SmallDisk(folder)
    finally:
        _run("umount", "--lazy", str(folder))


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Fail writes beyond a size, as a broken disk does; needs no rights."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def without_root() -> Iterator[Path]:
    """Provide a folder of an ordinary user, and become that user: permissions do not stop root."""
    folder = Path(tempfile.mkdtemp())  # not below pytest's own, which only its maker can enter
    user = os.geteuid()
    try:
        if user == 0:
            os.chown(folder, NOBODY, -1)
            os.seteuid(NOBODY)
        yield folder
    finally:
        os.seteuid(user)
        shutil.rmtree(folder)


def _has_room_for(file: int, size: int) -> bool:
    try:
        return os.write(file, bytes(size)) == size
    except OSError:
        return False


def _run(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
