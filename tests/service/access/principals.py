"""Principals for tests of the access services."""

from tidemill.access.principal import Principal, Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices


async def admin_of(access: AccessServices, tenant: str) -> Principal:
    """Create a tenant with an admin key, and return its principal."""
    await access.tenants.create(LOCAL_PRINCIPAL, tenant)
    return await access.keys.authenticate((await access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN, tenant=tenant)).token)
