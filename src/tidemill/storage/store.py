"""The store: one database behind all its ports.

Every write is one transaction to its caller, and shares one with concurrent writes in fact: see `committer`. A
write that raises StoreError has changed nothing.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tidemill.storage.backup import Replacement, Snapshot
from tidemill.storage.graph_ports import Checkpoints, KeySnapshots, PartOwners, Producers
from tidemill.storage.mailbox_port import Mailbox
from tidemill.storage.migrations import SchemaState
from tidemill.storage.store_size import StoreKind, StoreSize
from tidemill.storage.tables.access import ApiKeys, AuditEntries, Tenants
from tidemill.storage.tables.graphs import DeadLetters, Pauses, Recoveries
from tidemill.storage.tables.packages import Packages, PackageStates, TrustedKeys
from tidemill.storage.tables.peers import Peers
from tidemill.storage.tables.requests import RequestRecords
from tidemill.storage.tables.sessions import Accounts, Sessions, Tickets
from tidemill.storage.tables.variables import Secrets, Variables
from tidemill.storage.workflow_ports import WorkflowStore


class Store(WorkflowStore, Protocol):
    """A database behind its ports."""

    checkpoints: Checkpoints
    key_snapshots: KeySnapshots
    producers: Producers
    part_owners: PartOwners
    mailbox: Mailbox
    peers: Peers
    dead_letters: DeadLetters
    recoveries: Recoveries
    pauses: Pauses
    packages: Packages
    package_states: PackageStates
    trusted_keys: TrustedKeys
    tenants: Tenants
    api_keys: ApiKeys
    audit_entries: AuditEntries
    accounts: Accounts
    sessions: Sessions
    tickets: Tickets
    variables: Variables
    secrets: Secrets
    requests: RequestRecords

    kind: StoreKind

    @property
    def title(self) -> str:
        """What and where it is, for messages; never contains a password."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date under a lock; StoreError says why it cannot."""

    async def open_read_only(self) -> None:
        """Connect to read as of this moment; creates nothing, changes nothing, and accepts no writes.

        StoreError if the schema is not the one that this code knows.
        """

    async def close(self) -> None:
        """Release the database. Writes in flight may or may not be committed."""

    async def read_schema_state(self) -> SchemaState:
        """Return the version of the schema without changing anything; works on a store that is not open."""

    async def check_writable(self) -> None:
        """Raise a StoreError if a write has failed, and the store still takes none; free while no write fails."""

    def read_local_keys(self) -> str | None:
        """Return the master keys that a local store keeps for its secrets, and makes on first use; blocks.

        None if other hosts can use the store: they would not have the keys.
        """

    async def read_size(self) -> StoreSize:
        """Return the bytes of the whole store, and the number of rows of the tables that grow."""

    async def check_integrity(self) -> list[str]:
        """Return the damage that the database itself finds, one sentence each; works while open."""

    def open_snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Open all rows as of now, for a backup; works on a store that is not open, while others use it."""

    def open_replacement(self, schema_version: int, *, replace: bool) -> AbstractAsyncContextManager[Replacement]:
        """Open an empty store that replaces this one, which is not open, when the block ends without an error.

        StoreError if another process uses this store; RequestError if it has rows, unless `replace`.
        """
