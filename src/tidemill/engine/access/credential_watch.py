"""Watches the keys and sessions of open connections, and reports those that end."""

from collections.abc import Awaitable, Callable

from tidemill.engine.tasks import FOREVER, Wakeup
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError

CHECK_INTERVAL = 1.0  # seconds

OnEnd = Callable[[], None]


class CredentialWatch:
    """Calls back when the credential of an open connection is revoked, expires or is deleted.

    A request is authenticated when it begins. A WebSocket lasts for days, so its credential is checked while it is
    open: every second, and at once when another process changes one. A check costs one read per credential, however
    many connections share it.
    """

    def __init__(self, is_valid: Callable[[str], Awaitable[bool]], clock: Clock) -> None:
        self._is_valid = is_valid
        self._wakeup = Wakeup(clock)
        self._connections: dict[str, list[OnEnd]] = {}

    def subscribe(self, credential: str, on_end: OnEnd) -> Callable[[], None]:
        """Call `on_end` once when a credential ends; the returned function ends the subscription."""
        connections = self._connections.setdefault(credential, [])
        connections.append(on_end)
        self._wakeup.notify()

        def unsubscribe() -> None:
            if on_end in connections:
                connections.remove(on_end)
            if not connections and self._connections.get(credential) is connections:
                del self._connections[credential]

        return unsubscribe

    def check_soon(self) -> None:
        """Check now instead of at the next interval: some credential has changed."""
        self._wakeup.notify()

    async def run(self) -> None:
        """Check every open credential until cancelled."""
        while True:
            await self._wakeup.wait(CHECK_INTERVAL if self._connections else FOREVER)
            for credential in tuple(self._connections):
                await self._check(credential)

    async def _check(self, credential: str) -> None:
        try:
            is_valid = await self._is_valid(credential)
        except StoreError:
            return  # the store is away: what was valid before stays so until it answers
        if not is_valid:
            for on_end in self._connections.pop(credential, []):
                on_end()
