"""The access services of a store, built together: for a node, and for commands on a store without one."""

import asyncio

from tidemill.access.principal import INSTANCE_TENANT, Principal, Role
from tidemill.engine.access.audit_log import PRUNE_INTERVAL, AuditLog
from tidemill.engine.access.credential_watch import CredentialWatch
from tidemill.engine.access.keys import KeyService
from tidemill.engine.access.tenants import TenantService
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.store import Store

LOCAL_PRINCIPAL = Principal(tenant=INSTANCE_TENANT, role=Role.ADMIN, actor="local")
"""An operator at the machine itself: a command on a store, or a node without authentication."""


class AccessServices:
    """Tenants, keys and the audit log of a store."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self.audit = AuditLog(store.audit_entries, store.tenants, clock, settings)
        self.tenants = TenantService(store, self.audit, clock)
        self.keys = KeyService(store.api_keys, self.tenants, self.audit, clock)
        self.watch = CredentialWatch(self._is_valid, clock)

    async def run(self) -> None:
        """Follow the changes of other processes, watch open credentials, and prune the audit log, until cancelled."""
        await self._store.listen(self._on_remote_change, "access")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch.run(), name="access: credential watch")
            tasks.create_task(self._prune(), name="access: prune audit log")

    async def _prune(self) -> None:
        while True:
            await self.audit.prune()
            await self._clock.sleep(PRUNE_INTERVAL)

    def _on_remote_change(self) -> None:
        self.keys.forget_cached()
        self.watch.check_soon()

    async def _is_valid(self, credential: str) -> bool:
        _, _, id_ = credential.partition(":")
        return await self.keys.is_valid(id_)
