"""The access services of a store, built together: for a node, and for commands on a store without one."""

import asyncio
import logging

from tidemill.access.principal import INSTANCE_TENANT, Principal, Role
from tidemill.engine.access.accounts import AccountService
from tidemill.engine.access.attempts import AttemptAuthentication
from tidemill.engine.access.audit_log import AuditLog
from tidemill.engine.access.credential_watch import CredentialWatch
from tidemill.engine.access.given_values import GivenValues
from tidemill.engine.access.idempotency import IdempotentRequests
from tidemill.engine.access.keys import KeyService
from tidemill.engine.access.secret_sources import SecretSources
from tidemill.engine.access.secrets import SecretService
from tidemill.engine.access.sessions import SessionService, TicketService
from tidemill.engine.access.tenants import TenantService
from tidemill.engine.access.variables import VariableService
from tidemill.engine.tasks import run_forever
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import NodeRow
from tidemill.telemetry.node_events import NodeEvents

logger = logging.getLogger(__name__)

LOCAL_PRINCIPAL = Principal(tenant=INSTANCE_TENANT, role=Role.ADMIN, actor="local")
"""An operator at the machine itself: a command on a store, or a node without authentication."""
PRUNE_INTERVAL = 3600.0  # seconds


class AccessServices:
    """Tenants, keys, accounts, secrets and the audit log of a store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        owner: NodeRow | None = None,
        liveness: ProcessLiveness | None = None,
        node_events: NodeEvents | None = None,
        given: GivenValues | None = None,
    ) -> None:
        self._store = store
        self.clock = clock
        self.audit = AuditLog(store.audit_entries, clock, settings, node_events)
        self.tenants = TenantService(store, self.audit, clock)
        self.keys = KeyService(store.api_keys, store.sessions, self.tenants, self.audit, clock)
        self.accounts = AccountService(store.accounts, store.sessions, self.tenants, self.audit, clock)
        self.sessions = SessionService(store.sessions, self.audit, clock)
        self.tickets = TicketService(store.tickets, clock)
        self.variables = VariableService(store.variables, self.audit, clock, given or GivenValues())
        self.secrets = SecretService(store, self.audit, clock, settings, given.secrets if given else SecretSources())
        self.attempts = AttemptAuthentication(store.attempt_orders, store.code_bundles, clock)
        self.requests = IdempotentRequests(
            store.requests, clock, ttl=settings.lease_ttl, owner=owner, liveness=liveness
        )
        self.watch = CredentialWatch(self.is_valid, clock)

    async def run(self) -> None:
        """Follow the changes of other processes, watch open credentials, and prune old rows, until cancelled."""
        await self._store.listen(self._on_remote_change, "access")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch.run(), name="access: credential watch")
            tasks.create_task(run_forever(self._prune_later, _log_prune_error), name="access: prune")

    async def _prune_later(self) -> None:
        await self.clock.sleep(PRUNE_INTERVAL)
        for service in (self.audit, self.sessions, self.tickets, self.requests, self.attempts):
            await service.prune()

    def _on_remote_change(self) -> None:
        self.keys.forget_cached()
        self.watch.check_soon()

    async def is_valid(self, credential: str) -> bool:
        """Return whether a key or a session is still valid; others, such as an issuer's token, end by themselves."""
        kind, _, id_ = credential.partition(":")
        if kind == "session":
            return await self.sessions.is_valid(id_)
        return kind != "key" or await self.keys.is_valid(id_)


def _log_prune_error(error: Exception) -> None:
    logger.warning("old rows of access control were not pruned", exc_info=error)
