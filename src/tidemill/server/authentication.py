"""Authentication: finds the principal of a request."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.datastructures import State

from tidemill.access.principal import Principal
from tidemill.engine.access.keys import KeyService
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.kernel.errors import RequestError

Connection = ASGIConnection[object, Principal, object, State]


class NoAuthentication:
    """Takes every request from this machine as one of the local operator.

    A web page that is open in a browser on this machine can send requests too. It cannot hide where it comes from: its
    origin is another one, or, after a name was rebound to this address, the host is not a name of this machine.
    """

    async def authenticate(self, connection: Connection, /) -> Principal | None:
        """Return the local operator; RequestError for a request of a web page from elsewhere."""
        host = connection.headers.get("host", "")
        if not is_loopback(urlsplit(f"//{host}").hostname or ""):
            message = f"this server has no authentication and answers on this machine only, not as '{host}'"
            raise RequestError(message, code="foreign_host", status=403)
        check_origin(connection)
        return LOCAL_PRINCIPAL


class KeyAuthentication:
    """Finds the principal of an API key in the Authorization header."""

    def __init__(self, keys: KeyService) -> None:
        self._keys = keys

    async def authenticate(self, connection: Connection, /) -> Principal | None:
        """Return the principal of the key; None without one."""
        header = connection.headers.get("authorization")
        if header is None:
            return None
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise RequestError("send the key as `Authorization: Bearer KEY`", code="invalid_key", status=401)
        return await self._keys.authenticate(token.strip())


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_origin(connection: Connection) -> None:
    """Raise RequestError if a browser sent the request for a page of another site."""
    origin = connection.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != connection.headers.get("host", ""):
        raise RequestError("requests from pages of other sites are refused", code="foreign_origin", status=403)
