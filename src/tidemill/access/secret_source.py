"""The interface of what keeps secrets besides the store."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class SecretSource(Protocol):
    """Keeps secrets outside the store: a vault, a cloud, a file. Give one to a node with `tm.Node(secrets=...)`."""

    async def read(self, tenant: str, name: str) -> str | None:
        """Return the value of a secret of a tenant now; None if this source has none of that name.

        It is called each time a task asks. An exception fails the call of the task: no other source is asked.
        """
