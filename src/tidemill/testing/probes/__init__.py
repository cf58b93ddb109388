"""Read-only views of a node's engine parts, for tests that check more than behaviour: `node.probe`."""

from tidemill.testing.probes.graphs import GraphProbe
from tidemill.testing.probes.packages import PackageProbe
from tidemill.testing.probes.workflows import WorkflowProbe

__all__ = ["GraphProbe", "PackageProbe", "WorkflowProbe"]
