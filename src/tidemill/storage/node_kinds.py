"""The kinds of nodes on a store, and what is known about one."""

from typing import Literal

NodeKind = Literal["server", "worker", "host", "embedded"]
"""A server, a process that only runs tasks, one that only hosts partitions, or the node of a program."""
NodeState = Literal["alive", "silent", "dead"]
"""It beats, it has not beaten for `heartbeat_timeout`, or its process is gone."""
