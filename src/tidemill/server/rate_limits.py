"""Limits: how many requests and open connections a credential may have, and how often an address may fail.

Rates are token buckets: each holds as many requests as may come at once, and fills up at the rate that is allowed.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv4Address, ip_address, ip_network
from math import ceil
from typing import Any

from litestar.connection import ASGIConnection

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError

BUCKET_LIMIT = 10_000  # buckets that are kept, the last used; a new one is full
BURST_SECONDS = 2.0  # of the allowed rate that may come at once
FAILURE_RATE = 1.0  # failed authentications per second from one address
FAILURE_BURST = 30.0  # failed authentications at once
WRONG_PASSWORD_RATE = 1 / 60  # wrong passwords per second for one account from one address
WRONG_PASSWORD_BURST = 5.0  # of them at once
IPV6_PREFIX = 64  # bits of an IPv6 address that its owner cannot choose
KNOWN_ADDRESSES = 1024  # that are remembered, so that few requests parse theirs


class TokenBuckets:
    """Token buckets by name."""

    def __init__(self, clock: Clock, rate: float, burst: float) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were counted

    def take(self, name: str) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        tokens = self._count(name)
        if tokens < 1:
            return (1 - tokens) / self._rate
        self._put(name, tokens - 1)
        return 0.0

    def give_back(self, name: str) -> None:
        """Give a token back."""
        self._put(name, min(self._burst, self._count(name) + 1))

    def _count(self, name: str) -> float:
        tokens, counted_at = self._buckets.get(name, (self._burst, 0.0))
        return min(self._burst, tokens + (self._clock.monotonic() - counted_at) * self._rate)

    def _put(self, name: str, tokens: float) -> None:
        self._buckets[name] = (tokens, self._clock.monotonic())
        self._buckets.move_to_end(name)
        if len(self._buckets) > BUCKET_LIMIT:
            self._buckets.popitem(last=False)


class RateLimits:
    """The limits of one server."""

    def __init__(self, clock: Clock, requests_per_second: float, connections_per_key: int) -> None:
        self._requests = TokenBuckets(clock, requests_per_second, requests_per_second * BURST_SECONDS)
        self._failures = TokenBuckets(clock, FAILURE_RATE, FAILURE_BURST)
        self._wrong_passwords = TokenBuckets(clock, WRONG_PASSWORD_RATE, WRONG_PASSWORD_BURST)
        self._connections_per_key = connections_per_key
        self._connections: Counter[str] = Counter()

    @contextmanager
    def counting_failures(self, address: str) -> Iterator[None]:
        """Authenticate in this context: an address that fails too often gets 429 for its failures.

        Valid credentials are not affected: clients behind one proxy share an address.
        """
        try:
            yield
        except RequestError as error:
            self.count_failure(address, error)
            raise

    def count_failure(self, address: str, error: RequestError) -> None:
        """Count a failed authentication of an address, as `counting_failures` does; RequestError for one too many."""
        if error.status == HTTPStatus.UNAUTHORIZED and (wait := self._failures.take(address)):
            raise _too_many("too many requests from this address were refused", wait) from error

    @contextmanager
    def counting_password(self, address: str, tenant: str, account: str) -> Iterator[None]:
        """Check a password in this context; RequestError before it, since hashing takes long, for one too many.

        Wrong passwords count for one account from one address, so that they keep no one else from signing in, whatever
        other accounts the address has tried: those that do not exist cost little, see `AccountService.sign_in`. Each
        counts as wrong until it is checked, so that many at the same time do not get around the limit.
        """
        pair = f"{address} {hash((tenant, account))}"  # a name may be long
        if wait := self._wrong_passwords.take(pair):
            raise _too_many("too many wrong passwords for this account came from this address", wait)
        is_wrong = False
        try:
            with self.counting_failures(address):
                yield
        except RequestError as error:
            is_wrong = error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)
            raise
        finally:
            if not is_wrong:
                self._wrong_passwords.give_back(pair)

    @contextmanager
    def counting_connection(self, credential: str) -> Iterator[None]:
        """Keep a connection open in this context; RequestError if its credential has too many open."""
        if self._connections[credential] >= self._connections_per_key:
            message = f"this key or session has {self._connections_per_key} connections open: close some"
            raise RequestError(message, code="too_many_connections", status=429)
        self._connections[credential] += 1
        try:
            yield
        finally:
            self._connections[credential] -= 1
            if not self._connections[credential]:
                del self._connections[credential]

    def count_request(self, credential: str) -> None:
        """Count a request; RequestError if its credential has made too many."""
        if wait := self._requests.take(credential):
            raise _too_many("this key or session makes too many requests", wait)


def address_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Return the address by which a client is limited: an owner of IPv6 addresses has at least a network of them."""
    return _limited_address(connection.client.host if connection.client else "")


@lru_cache(KNOWN_ADDRESSES)
def _limited_address(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:  # a proxy says what it likes
        return host
    if isinstance(address, IPv4Address):
        return host
    return str(address.ipv4_mapped or ip_network((int(address), IPV6_PREFIX), strict=False))


def _too_many(reason: str, wait: float) -> RequestError:
    seconds = ceil(wait)
    message = f"{reason}: wait for {seconds} s, as `retry-after` says"
    return RequestError(message, code="rate_limited", status=429, retry_after=seconds)
