"""Settings from a TOML file: apart, so that programs without one do not pay for the parser."""

from pathlib import Path

from tidemill.kernel.settings import Settings
from tidemill.kernel.toml import read_toml


def read_settings(path: str | Path) -> Settings:
    """Return the settings of a TOML file, with what the environment says laid over them."""
    path = Path(path)
    return Settings.read(file=read_toml(path.read_text(encoding="utf-8"), str(path), "settings"))
