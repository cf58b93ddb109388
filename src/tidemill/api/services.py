"""The services that operations use: those of a node, or those of a store without a node.

The engines are imported where services are made: a command that only declares its options needs none of them.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidemill.engine.access.services import AccessServices
    from tidemill.engine.workflows.client.workflow_client import WorkflowClient
    from tidemill.kernel.settings import Settings
    from tidemill.storage.store import Store


class Services(NamedTuple):
    """What operations call."""

    access: "AccessServices"
    workflows: "WorkflowClient"


def open_services(store: "Store", settings: "Settings") -> Services:
    """Return the services of an open store without a node: the nodes on the store pick up what they change."""
    from tidemill.engine.access.services import AccessServices  # on use: commands that show help need no engine
    from tidemill.engine.workflows.client.store_client import make_store_client  # on use: likewise
    from tidemill.kernel.clock import SystemClock  # on use: likewise, it imports asyncio

    clock = SystemClock()
    workflows = make_store_client(store, clock, settings, executor="in_process")
    return Services(access=AccessServices(store, clock, settings), workflows=workflows)
