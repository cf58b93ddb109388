"""Addresses are shown without their passwords, even if they are misspelt."""

import pytest

from tidemill.kernel.settings import Settings, secret_variables
from tidemill.kernel.urls import mask_credentials, mask_password


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


@pytest.mark.parametrize(
    ("addresses", "shown"),
    [
        ("nats://me:secret@one:4222", "nats://…@one:4222"),
        ("nats://token@one", "nats://…@one"),
        ("nats://one, tls://me:secret@two,nats://token@three", "nats://one, tls://…@two,nats://…@three"),
        ("nats://me:sec,r@et@one", "nats://…@one"),
        ("me:secret@one,token@two", "…@two"),
        ("nats://one:4222,two:4222", "nats://one:4222,two:4222"),
    ],
)
def test_addresses_of_nats_are_shown_without_their_credentials(addresses: str, shown: str) -> None:
    """A user without a password is a token; tasks do not inherit the variable."""
    assert mask_credentials(addresses) == shown
    assert f"nats_servers={shown!r}" in repr(Settings(nats_servers=addresses))
    hidden = ["TIDEMILL_NATS_SERVERS"] if shown != addresses else []
    assert secret_variables({"TIDEMILL_NATS_SERVERS": addresses}) == hidden
    assert secret_variables({"TIDEMILL_NATS_SERVERS_FILE": "servers"}) == ["TIDEMILL_NATS_SERVERS_FILE"]
