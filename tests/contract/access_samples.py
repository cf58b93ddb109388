"""Rows of access control for the contract suite, with everything filled in that a test does not care about."""

from datetime import timedelta
from typing import Any

from tests.contract.samples import NOON
from tidemill.access.accounts import AccountRow, TenantRow
from tidemill.access.audit import AuditRow
from tidemill.access.keys import ApiKey
from tidemill.access.principal import Principal, Resource, Role
from tidemill.access.tokens import Session, Ticket
from tidemill.storage.tables.requests import RequestRecord
from tidemill.storage.tables.variables import StoredSecret, VariableRow


def tenant(name: str = "acme", **given: Any) -> TenantRow:
    """Return a tenant."""
    return TenantRow(name=name, **{"created_at": NOON, "created_by": "local"} | given)


def api_key(id: str = "k0000001", **given: Any) -> ApiKey:
    """Return a key that is restricted to two endpoints."""
    only = frozenset([Resource("accumulators", "a, b:c"), Resource("reactors", "market")])
    fields: dict[str, Any] = {
        "tenant": "acme",
        "role": Role.WRITE,
        "only": only,
        "created_at": NOON,
        "created_by": "local",
    }
    return ApiKey(id=id, **fields | given)


def audit_entry(id: str = "e1", **given: Any) -> AuditRow:
    """Return an audit entry."""
    fields: dict[str, Any] = {"at": NOON, "tenant": "acme", "actor": "key:1", "action": "run.cancel", "target": "r1"}
    return AuditRow(id=id, **fields | given)


PRINCIPAL = Principal(tenant="acme", role=Role.WRITE, actor="account:ada", only=frozenset(), credential="session:s1")


def account(name: str = "ada", **given: Any) -> AccountRow:
    """Return an account."""
    fields: dict[str, Any] = {"tenant": "acme", "role": Role.WRITE, "created_at": NOON, "created_by": "x"} | given
    return AccountRow(name=name, **fields)


def session(id: str = "s1", **given: Any) -> Session:
    """Return a session that lasts for an hour."""
    times = {"created_at": NOON, "seen_at": NOON, "expires_at": NOON + timedelta(hours=1)}
    return Session(id=id, **{"tenant": "acme", "actor": "account:ada", "principal": PRINCIPAL} | times | given)


def ticket(**given: Any) -> Ticket:
    """Return a ticket."""
    return Ticket(**{"tenant": "acme", "endpoint": "/ws/events", "principal": PRINCIPAL, "expires_at": NOON} | given)


def variable(name: str = "region", **given: Any) -> VariableRow:
    """Return a variable."""
    return VariableRow(name=name, **{"tenant": "acme", "value": "eu", "updated_at": NOON, "updated_by": "x"} | given)


def secret(name: str = "password", **given: Any) -> StoredSecret:
    """Return a secret."""
    fields: dict[str, Any] = {
        "tenant": "acme",
        "version": 1,
        "key_id": "k1",
        "wrapped_key": b"\0wrapped",
        "ciphertext": b"\xffcipher",
    }
    return StoredSecret(name=name, **fields | {"updated_at": NOON, "updated_by": "x"} | given)


def request(key: str = "i1", **given: Any) -> RequestRecord:
    """Return a request that is being handled."""
    fields: dict[str, Any] = {"tenant": "acme", "route": "POST /runs", "digest": b"\0digest", "owner": "o1", "at": NOON}
    return RequestRecord(key=key, **fields | given)
