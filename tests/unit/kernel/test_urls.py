"""Addresses are shown without their passwords, even if they are misspelt."""

import pytest

from tidemill.kernel.settings import Settings
from tidemill.kernel.urls import mask_password


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:…@host/db"),
        ("postgresql://me:sec@ret@host/db", "postgresql://me:…@host/db"),
        ("postgresql:/me:secret@host/db", "postgresql:/me:…@host/db"),
        ("me:secret@host/db", "me:…@host/db"),
        ("postgresql://host/db?user=me&password=secret&jit=off", "postgresql://host/db?user=me&password=…&jit=off"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("sqlite:///tidemill.db", "sqlite:///tidemill.db"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert mask_password(address) == shown


def test_settings_show_no_password() -> None:
    """They end up in logs and tracebacks."""
    settings = Settings(store="postgresql://me:secret@host/db")
    assert settings.store == "postgresql://me:secret@host/db"
    assert "store='postgresql://me:…@host/db'" in repr(settings)
    assert "store=None" in repr(Settings())
