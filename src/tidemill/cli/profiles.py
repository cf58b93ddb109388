"""Profiles: servers that a user works with, by name, with their keys, in a file that only the user can read."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.kernel.errors import NotFoundError, OperationError, RequestError
from tidemill.kernel.suggestions import did_you_mean

_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADING = "# Written by `tidemill profile`: the servers of this user, and their keys.\n"


class Profile(NamedTuple):
    """A server, and how a user works with it."""

    server: str
    key: str | None = None
    tenant: str | None = None

    def __repr__(self) -> str:
        return f"<profile of {self.server}>"  # without the key


class Profiles(NamedTuple):
    """The content of the file."""

    by_name: Mapping[str, Profile]
    current: str | None = None

    def find(self, name: str) -> Profile:
        """Return a profile; NotFoundError if there is none of this name."""
        if (profile := self.by_name.get(name)) is None:
            hint = did_you_mean(name, self.by_name) or "; `tidemill profile list` shows those that there are"
            raise NotFoundError("profile", name, f"there is no profile '{name}'{hint}", self.by_name)
        return profile


def profiles_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of the profiles."""
    home = environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(home) / "tidemill" / "config.toml"


def read_profiles(file: Path) -> Profiles:
    """Return the profiles of a file; none if there is no file."""
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = tomllib.load(stream)
    except FileNotFoundError:
        return Profiles({})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OperationError(f"the profiles in {file} cannot be read: {error}") from error
    profiles = _parse(content, file)
    if mode & 0o077 and any(one.key for one in profiles.by_name.values()):
        raise OperationError(f"{file} holds keys, and others can read it: run `chmod 600 {file}`")
    return profiles


def _parse(content: Mapping[str, Any], file: Path) -> Profiles:
    try:
        by_name = {name: Profile(**fields) for name, fields in content.get("profiles", {}).items()}
        current = content.get("current")
        if not all(isinstance(one, str | None) for profile in by_name.values() for one in profile):
            raise TypeError("a field of a profile is a text")
        if not isinstance(current, str | None):
            raise TypeError("`current` is the name of a profile")
    except (TypeError, AttributeError) as error:
        raise OperationError(f"the profiles in {file} are invalid: {error}") from error
    return Profiles(by_name, current if current in by_name else None)


def write_profiles(file: Path, profiles: Profiles) -> None:
    """Write the file as a whole, readable for its owner only."""
    lines = [_HEADING]
    if profiles.current is not None:
        lines.append(f"current = {_text(profiles.current)}\n")
    for name, profile in profiles.by_name.items():
        fields = {field: value for field, value in profile._asdict().items() if value is not None}
        lines.append(f"\n[profiles.{name}]\n" + "".join(f"{field} = {_text(fields[field])}\n" for field in fields))
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_suffix(f".{os.getpid()}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
            stream.write("".join(lines))
        draft.replace(file)
    except OSError as error:
        raise OperationError(f"the profiles cannot be written to {file}: {error}") from error


def check_profile_name(name: str) -> str:
    """Return the name of a new profile; RequestError if it is not one."""
    if not _NAME_PATTERN.fullmatch(name):
        message = f"the name of a profile has letters, digits, '-' and '_', 64 at most: {name!r} is not one"
        raise RequestError(message, code="invalid_profile")
    return name


def _text(value: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
