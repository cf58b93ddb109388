"""Limits of passwords, on virtual time."""

from contextlib import ExitStack, suppress

import pytest
from litestar.connection import ASGIConnection

from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.server.rate_limits import WRONG_PASSWORD_BURST, RateLimits, address_of


def test_wrong_passwords_for_other_accounts_keep_no_one_out() -> None:
    """Whatever an address has tried: clients behind one proxy share it."""
    limits = RateLimits(VirtualClock(), requests_per_second=1, connections_per_key=1)
    for number in range(1000):
        with suppress(RequestError), limits.counting_password("203.0.113.7", "public", f"eve{number}"):
            raise RequestError("the password is wrong", code="invalid_login", status=401)
    with limits.counting_password("203.0.113.7", "public", "ada"):
        pass


def test_wrong_passwords_count_for_one_account() -> None:
    """From one address; they are forgotten with time."""
    clock = VirtualClock()
    limits = RateLimits(clock, requests_per_second=1, connections_per_key=1)
    for _ in range(int(WRONG_PASSWORD_BURST)):
        with pytest.raises(RequestError, match="wrong"), limits.counting_password("203.0.113.7", "public", "ada"):
            raise RequestError("the password is wrong", code="invalid_login", status=401)
    with pytest.raises(RequestError, match="for this account") as refused:
        limits.counting_password("203.0.113.7", "public", "ada").__enter__()
    assert refused.value.facts["retry_after"] == 60
    clock.advance_to(clock.monotonic() + 60)
    with limits.counting_password("203.0.113.7", "public", "ada"):
        pass


def test_passwords_that_are_checked_at_the_same_time_count() -> None:
    """As many as may be wrong, and no more; a right one, or a check that failed, is given back."""
    limits = RateLimits(VirtualClock(), requests_per_second=1, connections_per_key=1)
    with ExitStack() as stack:
        for _ in range(int(WRONG_PASSWORD_BURST)):
            stack.enter_context(limits.counting_password("203.0.113.7", "public", "ada"))
        with pytest.raises(RequestError, match="for this account"):
            limits.counting_password("203.0.113.7", "public", "ada").__enter__()
    for _ in range(2 * int(WRONG_PASSWORD_BURST)):
        with suppress(StoreError), limits.counting_password("203.0.113.7", "public", "ada"):
            raise StoreError("the store is away")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("unknown", "unknown"),
    ],
)
def test_a_client_is_limited_by_what_it_cannot_choose(host: str, address: str) -> None:
    """An owner of IPv6 addresses has a network of them."""
    scope = {"type": "http", "client": (host, 1), "headers": []}
    assert address_of(ASGIConnection(scope)) == address
