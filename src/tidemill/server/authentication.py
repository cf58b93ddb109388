"""Authentication: finds the principal of a request."""

from litestar.connection import ASGIConnection
from litestar.datastructures import State

from tidemill.access.principal import INSTANCE_TENANT, Principal, Role

LOCAL_ADMIN = Principal(tenant=INSTANCE_TENANT, role=Role.ADMIN, actor="local")
"""The principal of every request to a server without authentication, which listens on loopback only."""


class NoAuthentication:
    """Takes every request as one of the local admin."""

    async def authenticate(self, _: "ASGIConnection[object, Principal, object, State]", /) -> Principal | None:
        """Return the local admin."""
        return LOCAL_ADMIN
