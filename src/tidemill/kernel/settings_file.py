"""Settings from a TOML file: apart, so that programs without one do not pay for the parser."""

import tomllib
from pathlib import Path

from tidemill.kernel.errors import DefinitionError, Location
from tidemill.kernel.settings import Settings


def read_settings(path: str | Path) -> Settings:
    """Return the settings of a TOML file, with what the environment says laid over them."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError.of("settings", str(error), Location(str(path), 1)) from error
    return Settings.read(file=content)
