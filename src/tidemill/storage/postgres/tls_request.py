"""Corrects the driver's request for TLS: an attempt to connect that is cancelled leaves no unretrieved error.

A connection that ends before the server has answered sets an error for the caller that waits for the answer. If the
attempt is cancelled while the socket is being set up, the driver has no such caller yet, and asyncio logs "Future
exception was never retrieved" about an error that concerns no one.
"""

import asyncio
from typing import Any

from asyncpg import connect_utils

# The name is not part of the driver's interface: a version without it needs no correction, and gets none.
_DriverRequest: Any = getattr(connect_utils, "TLSUpgradeProto", asyncio.Protocol)


class TlsRequest(_DriverRequest):  # type: ignore[misc]  # the driver has no types
    """Asks the server for TLS. The caller that waits for the answer gets an error, and asyncio never misses one."""

    def connection_lost(self, error: Exception | None) -> None:
        """Set the error, and mark it as retrieved."""
        super().connection_lost(error)
        if not self.on_data.cancelled():
            self.on_data.exception()


def correct_driver() -> None:
    """Make the driver use the corrected request, in the whole process."""
    connect_utils.TLSUpgradeProto = TlsRequest
