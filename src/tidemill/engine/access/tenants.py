"""Tenants: creates, lists and deletes them, and decides for which one a principal acts."""

from collections.abc import Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from tidemill.access.accounts import TenantRow
from tidemill.access.principal import INSTANCE_TENANT, Principal, Role
from tidemill.engine.access.audit_log import AuditLog
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.limits import is_storable, validate_tenant
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import RunFilter
from tidemill.workflows.states import active_states

PRUNE_BATCH = 100  # runs in one transaction
_AT_ANY_TIME = datetime.max.replace(tzinfo=UTC)


class TenantService:
    """The tenants of an instance."""

    def __init__(self, store: Store, audit: AuditLog, clock: Clock) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock

    async def create(self, principal: Principal, name: str, *, at: datetime | None = None) -> TenantRow:
        """Create a tenant; `at` is when a request was first made: a repetition of it returns the same tenant."""
        now = self._clock.now() if at is None else at
        tenant = TenantRow(name=validate_tenant(name), created_at=now, created_by=principal.actor)
        is_new = await self._store.tenants.add(tenant)
        if not is_new and (at is None or await self._store.tenants.get(name) != tenant):
            raise RequestError(f"there is a tenant '{name}' already", code="tenant_exists", status=409)
        await self._audit.record(principal, "tenant.create", name)
        return tenant

    async def list_for(self, principal: Principal) -> list[TenantRow]:
        """Return the tenants that a principal may act for: every one for an admin of the instance, or its own."""
        tenants = await self._store.tenants.list_all()
        return [one for one in tenants if principal.is_instance_admin or one.name == principal.tenant]

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete a tenant with everything it owns; refused while it has packages or active runs."""
        await self._ensure_known(name)
        if name == INSTANCE_TENANT:
            message = "the tenant 'public' belongs to the instance: it cannot be deleted"
            raise RequestError(message, code="tenant_in_use", status=409)
        if reason := await self._find_use(name):
            message = f"tenant '{name}' is in use: {reason}"
            raise RequestError(message, code="tenant_in_use", status=409, tenant=name)
        while await self._store.runs.prune(name, _AT_ANY_TIME, PRUNE_BATCH):
            pass
        await self._store.tenants.delete(name)
        await self._audit.record(principal, "tenant.delete", name)

    async def act_for(
        self, principal: Principal, tenant: str, has_loaded: Callable[[str], bool] = lambda _: False
    ) -> Principal:
        """Return the principal as an admin of another tenant, which only an admin of the instance may be.

        The tenant exists if it was created, or if this node has loaded something for it, as its program may do.
        """
        if tenant == principal.tenant:
            return principal
        _check_instance_admin(principal, tenant)
        if not has_loaded(validate_tenant(tenant)):
            await self._ensure_known(tenant)
        return replace(principal, tenant=tenant, role=Role.ADMIN, is_acting=True)

    async def resolve(self, principal: Principal, tenant: str | None) -> str:
        """Return the tenant that a request is about, by default the principal's; RequestError if it may not be."""
        if tenant is None or tenant == principal.tenant:
            return principal.tenant
        _check_instance_admin(principal, tenant)
        await self._ensure_known(tenant)
        return tenant

    async def _ensure_known(self, name: str) -> None:
        if not is_storable(name) or await self._store.tenants.get(name) is None:
            known = [one.name for one in await self._store.tenants.list_all()]
            raise NotFoundError("tenant", name, f"there is no tenant '{name}'{did_you_mean(name, known)}", known)

    async def _find_use(self, name: str) -> str | None:
        """Return in a sentence what still needs a tenant."""
        published = [one.name for one in await self._store.packages.list_published() if one.tenant == name]
        loaded = [one.name for one in await self._store.package_states.list_all() if one.tenant == name]
        if packages := sorted({*published, *loaded}):
            return f"unload its packages first: {', '.join(packages)}"
        active = RunFilter(tenant=name, states=active_states(), limit=1)
        if runs := await self._store.runs.find(active):
            return f"wait for its active runs, or cancel them: {runs[0].id}"
        return None


def _check_instance_admin(principal: Principal, tenant: str) -> None:
    if not principal.is_instance_admin:
        message = f"only an admin of the tenant '{INSTANCE_TENANT}' acts for the tenant '{tenant}'"
        raise RequestError(message, code="not_allowed", status=403)
