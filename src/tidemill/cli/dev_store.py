"""The default store of `tidemill dev` and `tidemill demo`: a file in the folder that they run."""

from pathlib import Path

from tidemill.kernel.errors import OperationError

STORE_FOLDER = ".tidemill"
"""Hidden, so that it is not part of a package."""


def default_store_address(root: Path) -> str:
    """Return the address of the default store; create its folder, which Git ignores."""
    home = (root if root.is_dir() else root.parent) / STORE_FOLDER
    try:
        home.mkdir(exist_ok=True)
        (home / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        message = f"{home} cannot be created ({error.strerror}): name a store with --store sqlite:///FILE"
        raise OperationError(message) from error
    return f"sqlite:///{home / 'dev.db'}"
