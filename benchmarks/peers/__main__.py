"""Run the same work on Tidemill, without an engine, and on other libraries from PyPI, in turns.

python -m benchmarks.peers [--quick]
"""

import sys

from benchmarks.measure import keep
from benchmarks.peers import graph_comparison, workflow_comparison
from benchmarks.peers.contestants import prepare_peers
from benchmarks.peers.environments import version_of
from benchmarks.peers.graph_comparison import compare_graphs
from benchmarks.peers.workflow_comparison import compare_workflows


def main(*, quick: bool) -> None:
    """Prepare the peers, compare, and keep the figures."""
    peers, missing = prepare_peers((*graph_comparison.PEERS, *workflow_comparison.PEERS))
    figures = compare_graphs(peers, rounds=5 if quick else 30)
    workflows = compare_workflows(peers, rounds=1 if quick else 5)
    versions = {name: version_of(name) for name in peers}
    keep("peers", {**figures, "workflows": workflows, "versions": versions, "not installed": missing})


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
