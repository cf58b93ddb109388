"""Changes by people and programs, for the event feed: a page that shows what they are about learns of them."""

from tidemill.access.audit import AuditRow
from tidemill.telemetry import events
from tidemill.telemetry.node_events import NodeEvents

UNPUBLISHED = frozenset(["graph.call", "run.start", "session.open", "session.close"])
"""Actions that can be frequent, and whose effects are events of their own or on no page."""
OF_ALL_TENANTS = frozenset(["pool"])
"""What belongs to the instance, and every tenant sees."""


def publish_change(node_events: NodeEvents, entry: AuditRow) -> None:
    """Publish the change of an audit entry, without who has made it: the audit log is for admins."""
    if entry.action in UNPUBLISHED:
        return
    noun, _, _ = entry.action.partition(".")
    tenant = None if noun in OF_ALL_TENANTS else entry.tenant
    node_events.publish(events.CHANGE_MADE, tenant, action=entry.action, target=entry.target)
