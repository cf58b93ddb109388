"""Static sites: folders of files that the server answers with, such as the web UI and the documentation.

The handlers are our own, since the framework's know neither compressed copies of files nor the routes of a page.
"""

from hashlib import blake2b
from mimetypes import guess_type
from os.path import isfile  # Path.is_file raises for a name that is too long
from pathlib import Path
from typing import NamedTuple

STATIC_FOLDER = Path(__file__).parent / "static"
HASHED_FOLDER = "assets"
"""The folder of files whose names contain a hash of their content."""
FOREVER = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"
"""Browsers keep the file, and ask before each use whether it has changed."""

PAGE_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""The content security policy of the web UI and the documentation.

Components set styles of elements, icons are in style sheets, and nothing comes from outside.
"""

# Python 3.11 takes types from the machine's own tables, and some machines say text/plain for scripts.
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".xml": "application/xml",
}
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
"""Encodings of compressed copies next to a file, the smaller first."""


class StaticFile(NamedTuple):
    """A file as an answer."""

    content: bytes
    headers: dict[str, str]
    """Everything about the content, and whether to keep it."""
    media_type: str
    is_unchanged: bool
    """Whether the client has this content: it is not sent again."""


class StaticSite:
    """A folder of files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._hashes: dict[Path, tuple[tuple[int, int, int], str]] = {}

    def is_folder(self, path: str) -> bool:
        """Return whether a path names a folder with its own page."""
        found = self._find(path)
        return found is not None and isfile(found / "index.html")

    def read(self, path: str, encodings: str = "", known_etags: str = "") -> StaticFile | None:
        """Return the file at a path below the folder; None if there is none. It blocks: call it on a thread.

        The client takes the `encodings`, and has the contents with the `known_etags`; both as their headers say.
        """
        found = self._find(path)
        if found is None or not isfile(found):
            return None
        copy, encoding = _choose_copy(found, encodings)
        etag = f'"{self._hash(copy)}"'
        is_hashed = found.relative_to(self._folder).parts[0] == HASHED_FOLDER
        headers = {"etag": etag, "cache-control": FOREVER if is_hashed else REVALIDATE, "vary": "accept-encoding"}
        if encoding is not None:
            headers["content-encoding"] = encoding
        is_unchanged = etag in known_etags
        media_type = _MEDIA_TYPES.get(found.suffix) or guess_type(found.name)[0] or "application/octet-stream"
        return StaticFile(b"" if is_unchanged else copy.read_bytes(), headers, media_type, is_unchanged)

    def _hash(self, file: Path) -> str:
        """Return a hash of a file's content: reproducible builds give every file the same time of modification.

        It is kept until the file system says that the file has changed, by a time that no build can set.
        """
        status = file.stat()
        written = (status.st_ino, status.st_ctime_ns, status.st_size)
        known, digest = self._hashes.get(file, (None, ""))
        if written != known:
            digest = blake2b(file.read_bytes(), digest_size=16).hexdigest()
            self._hashes[file] = (written, digest)
        return digest

    def _find(self, path: str) -> Path | None:
        """Return what a path names; None if it leads out of the folder, even through a link."""
        if "\0" in path:
            return None
        found = (self._folder / path.lstrip("/")).resolve()
        return found if found.is_relative_to(self._folder) else None


def _choose_copy(file: Path, accepted: str) -> tuple[Path, str | None]:
    """Return the file or a compressed copy of it, with the encoding of the copy."""
    weights = dict(one.partition(";q=")[::2] for one in accepted.replace(" ", "").split(","))
    for encoding, suffix in _ENCODINGS:
        copy = file.with_name(file.name + suffix)
        is_refused = weights.get(encoding, "0").strip("0.") == "" and weights.get(encoding) != ""
        if not is_refused and isfile(copy):
            return copy, encoding
    return file, None
