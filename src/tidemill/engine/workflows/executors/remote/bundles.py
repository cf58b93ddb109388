"""Code bundles: the modules of a package as one archive, so that a unit runs the very code that the node has loaded."""

import hashlib
import io
import os
import zipfile
from pathlib import Path, PurePosixPath

from tidemill.kernel.errors import OperationError

_ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: equal folders have equal bundles."""

_LEFT_OUT = "__pycache__"


def pack_folder(folder: Path) -> bytes:
    """Return the files of a folder as an archive: the same bytes for the same content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(one for one in folder.rglob("*") if one.is_file() and _LEFT_OUT not in one.parts):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _ENTRY_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def digest_bundle(archive: bytes) -> str:
    """Return the digest by which an archive is known."""
    return hashlib.sha256(archive).hexdigest()


def unpack_bundle(archive: bytes, digest: str, folder: Path) -> None:
    """Write the files of an archive into a folder; OperationError if it is not the one with the digest."""
    if digest_bundle(archive) != digest:
        raise OperationError(f"the downloaded code is not the ordered one: its digest is not {digest}")
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        for entry in opened.infolist():
            name = PurePosixPath(entry.filename)
            if name.is_absolute() or ".." in name.parts:
                raise OperationError(f"the downloaded code names a file outside its folder: {entry.filename!r}")
            target = folder / name
            os.makedirs(target.parent, exist_ok=True)
            target.write_bytes(opened.read(entry))
