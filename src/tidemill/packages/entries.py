"""Which files a package may hold: names that mean the same on every machine and lead nowhere else."""

import unicodedata
from collections.abc import Iterable

import msgspec

from tidemill.kernel.errors import RequestError
from tidemill.packages.manifest import MANIFEST, Manifest

SIGNATURE = "SIGNATURE"

_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a package may be. What is more is refused before it is unpacked."""

    entries: int = 2_000
    archive_size: int = 67_108_864
    total_size: int = 67_108_864
    file_size: int = 16_777_216
    ratio: int = 100
    """How many times its compressed size a file may have, if it is bigger than `ratio_free_size`."""

    ratio_free_size: int = 65_536
    name_length: int = 200
    """Of a path, in bytes of UTF-8."""

    depth: int = 16


def invalid(title: str, message: str, entry: str | None = None) -> RequestError:
    """Return the error for a package that is not as it must be."""
    return RequestError(f"{title}: {message}", code="invalid_package", entry=entry)


def too_large(title: str, message: str, entry: str | None = None) -> RequestError:
    """Return the error for a package that is more than the limits allow."""
    return RequestError(f"{title}: {message}", code="package_too_large", status=413, entry=entry)


def is_left_out(part: str) -> bool:
    """Tell whether a file or folder is no part of any package: hidden ones, and what Python compiled."""
    return part.startswith(".") or part == "__pycache__" or part.endswith((".pyc", ".pyo"))


def check_names(title: str, names: Iterable[str], limits: Limits) -> None:
    """Refuse names that lead out of a folder, or that would meet in one place."""
    files: set[str] = set()
    places: dict[str, str] = {}
    for name in names:
        if reason := _reason(name, limits):
            raise invalid(title, f"entry {name[:300]!r} {reason}", name)
        if name in files:
            raise invalid(title, f"entry {name!r} is in it twice", name)
        files.add(name)
        for path in (*_folders(name), name):
            other = places.setdefault(_same_place(path), path)
            if other != path:
                raise invalid(title, f"entry {name!r} would be in one place with {other!r}", name)
    for name in sorted(files):
        if covered := files & {*_folders(name)}:
            raise invalid(title, f"entry {name!r} lies in {min(covered)!r}, which is a file", name)


def _folders(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _same_place(path: str) -> str:
    """Return what is equal for paths that a file system without cases, or with its own Unicode form, takes for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _reason(name: str, limits: Limits) -> str:
    """Return what is wrong with a name, or nothing."""
    if not name.isprintable():
        return "has a character that cannot be printed"
    if len(name.encode()) > limits.name_length:
        return f"has a name of more than {limits.name_length} bytes"
    if "\\" in name or ":" in name:
        return "has a '\\' or a ':' in its name"
    parts = name.split("/")
    if len(parts) > limits.depth:
        return f"lies more than {limits.depth} folders deep"
    for part in parts:
        if part in ("", ".", ".."):
            return "has a path that is absolute, leads upwards or has an empty part"
        if is_left_out(part):
            return "is hidden or compiled, which no package holds"
        if part[-1] in " ." or part.partition(".")[0].strip().casefold() in _DEVICES:
            return "has a name that some systems cannot have"
    return ""


def check_belonging(title: str, names: Iterable[str], manifest: Manifest) -> None:
    """Refuse entries that are of no module that the manifest names."""
    tops = manifest.tops
    known = {MANIFEST, SIGNATURE, *(f"{top}.py" for top in tops)}
    for name in names:
        folder, slash, _ = name.partition("/")
        if name not in known and not (slash and folder in tops):
            raise invalid(title, f"entry {name!r} belongs to no module that {MANIFEST} names ({', '.join(tops)})", name)


def check_modules(title: str, names: Iterable[str], manifest: Manifest) -> None:
    """Refuse a package in which a module that the manifest names is missing, or is there in two forms."""
    held = set(names)
    for module in manifest.modules:
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            forms = [form for form in (f"{path}.py", f"{path}/__init__.py") if form in held]
            if not forms:
                raise invalid(
                    title, f"{MANIFEST} names module '{module}', and there is no {path}.py or {path}/__init__.py"
                )
            if len(forms) == 2 or (depth < len(parts) and forms == [f"{path}.py"]):
                raise invalid(title, f"{forms[0]!r} is in the way of module '{module}'", forms[0])
