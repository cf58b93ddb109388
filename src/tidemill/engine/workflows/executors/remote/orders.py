"""Orders: what a unit is to run, as a server hands it out to `tidemill attempt`, and its code as one archive."""

import hashlib
import io
import os
import zipfile
from pathlib import Path, PurePosixPath

import msgspec

from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.kernel.backoff import RetryNumbers
from tidemill.kernel.errors import OperationError
from tidemill.workflows.task_overrides import TaskOverrides


class BundledCode(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Code that the unit downloads: the modules of a package."""

    digest: str
    """Of the bundle."""
    shown: str
    """The author's own folder, shown in tracebacks."""
    tops: tuple[str, ...]
    """The first parts of its modules' names."""
    modules: tuple[str, ...]
    """The modules to import, in that order."""
    settings: dict[str, TaskOverrides] = {}
    """The task settings of the package's manifest."""


class InstalledCode(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Code that the unit has already: a module that it can import, or that is in the same file as on the node."""

    module: str
    file: str
    path: tuple[str, ...]
    """The import path of the node."""


OrderedCode = BundledCode | InstalledCode


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The order of one attempt."""

    request: AttemptRequest
    code: OrderedCode
    retry: RetryNumbers | None = None
    lease: float
    """Seconds that the attempt may run without a heartbeat that was answered."""
    heartbeat_interval: float

    def encode(self) -> bytes:
        """Return the stored form."""
        return _ENCODER.encode(self)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Order)


def decode_order(payload: bytes) -> Order:
    """Return an order from its stored form."""
    return _DECODER.decode(payload)


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
