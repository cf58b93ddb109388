"""A user without profiles and settings."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's configuration: empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TIDEMILL_SERVER", "TIDEMILL_KEY", "TIDEMILL_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
