"""Rows of access control for the contract suite, with everything filled in that a test does not care about."""

from typing import Any

from tests.contract.samples import NOON
from tidemill.access.audit import AuditEntry
from tidemill.access.keys import ApiKey
from tidemill.access.principal import Resource, Role
from tidemill.access.tenants import Tenant


def tenant(name: str = "acme", **given: Any) -> Tenant:
    """Return a tenant."""
    return Tenant(name=name, **{"created_at": NOON, "created_by": "local"} | given)


def api_key(id: str = "k0000001", **given: Any) -> ApiKey:
    """Return a key that is restricted to two endpoints."""
    only = frozenset([Resource("accumulators", "a, b:c"), Resource("reactors", "market")])
    fields = {"tenant": "acme", "role": Role.WRITE, "only": only, "created_at": NOON, "created_by": "local"}
    return ApiKey(id=id, **fields | given)


def audit_entry(id: str = "e1", **given: Any) -> AuditEntry:
    """Return an audit entry."""
    fields = {"at": NOON, "tenant": "acme", "actor": "key:1", "action": "run.cancel", "target": "r1"}
    return AuditEntry(id=id, **fields | given)
