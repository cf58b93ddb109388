"""The file next to a database that holds the master keys of its secrets, for a node without configured keys."""

import os
from pathlib import Path

from tidemill.access.envelope import new_master_keys_text
from tidemill.kernel.errors import OperationError

KEY_FILE_SUFFIX = "-secret-keys"
_OTHERS = 0o077  # permissions of everyone but the owner


def read_or_create_keys(path: Path) -> str:
    """Return the content of the file, which one process creates; OperationError if others can read it."""
    try:
        if path.stat().st_mode & _OTHERS:
            raise OperationError(f"{path} holds keys, and others can read it; run `chmod 600 {path}`")
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        _create(path)
        return path.read_text("ascii").strip()


def _create(path: Path) -> None:
    """Write new keys under another name, then link it, so that no process reads half of them."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(new_master_keys_text() + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first: its keys count
    finally:
        draft.unlink()
