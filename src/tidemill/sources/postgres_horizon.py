"""The horizon of a table: the number up to which every row that will ever exist is visible.

An INSERT locks the table (`RowExclusiveLock`) before it takes its number, and holds the lock until its transaction has
ended. So a transaction that still has a number below a visible row's holds such a lock at this moment. The horizon
moves to the newest visible number when all transactions that held one after that number was seen have ended; those
that begin later take higher numbers. `pg_locks` shows the locks to every user.

The ids of transactions cannot decide this: an INSERT takes its number before its transaction gets an id.
"""

from typing import Any

import msgspec

FIND_TABLE = """
SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
       (SELECT format_type(a.atttypid, NULL) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped) AS column_type,
       pg_is_in_recovery() AS is_replica
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)
"""

FIND_SEQUENCE = """
SELECT s.seqrelid::regclass::text AS name, s.seqcache AS cache, s.seqincrement AS increment,
       CASE WHEN has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') THEN pg_sequence_last_value(s.seqrelid) END
       AS last_value
FROM pg_sequence s
WHERE s.seqrelid = pg_get_serial_sequence($1::oid::regclass::text, $2)::regclass
"""

_FIND_WRITERS = """
SELECT newest, CASE WHEN newest IS NULL AND NOT $3 THEN ARRAY[]::text[] ELSE ARRAY(
    SELECT DISTINCT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND relation IN (SELECT $2::oid UNION SELECT relid FROM pg_partition_tree($2::oid::regclass))
) END AS writers
FROM ({find_newest}) AS found (newest)
"""

_INTEGERS = ("smallint", "integer", "bigint")
_TABLE_KINDS = ("r", "p")


class TableFacts(msgspec.Struct, frozen=True):
    """A table as the catalogue describes it."""

    oid: int
    schema: str
    name: str
    kind: str
    column_type: str | None
    is_replica: bool

    def find_problem(self, column: str) -> str | None:
        """Return why it cannot be read in order, and the remedy."""
        if self.kind not in _TABLE_KINDS:
            return "it is no table; name the table that the rows are inserted into, and use columns= and where="
        if self.column_type is None:
            return f"it has no column '{column}'; name its sequence column with sequence="
        if self.column_type not in _INTEGERS:
            return f"column '{column}' is of type {self.column_type}; a sequence column holds integers"
        return None


class SequenceFacts(msgspec.Struct, frozen=True):
    """The sequence that a column takes its numbers from; the defaults are those of a column without one."""

    name: str | None = None
    cache: int = 1
    increment: int = 1
    last_value: int | None = None

    def find_problem(self) -> str | None:
        """Return why its numbers are not in the order of the inserts, and the remedy."""
        if self.increment < 0:
            return f"sequence {self.name} counts downwards, so new rows have lower numbers; use one that counts upwards"
        if self.cache > 1:
            return (
                f"sequence {self.name} has CACHE {self.cache}, so sessions insert numbers out of order and rows would "
                f"be missed; run ALTER SEQUENCE {self.name} CACHE 1"
            )
        return None


class Horizon:
    """Follows the horizon of one table."""

    def __init__(self, table: int, find_newest: str) -> None:
        self._table = table
        self._query = _FIND_WRITERS.format(find_newest=find_newest)
        self._candidate: int | None = None
        self._writers: frozenset[str] = frozenset()
        self.safe: int | None = None
        """Every row up to this number is visible; None before the first."""
        self.newest: int | None = None
        """The newest visible number, as of the last look."""

    @property
    def is_blocked(self) -> bool:
        """Whether rows are visible that running transactions hold back."""
        return bool(self._writers)

    def count_numbers_after(self, position: int) -> int | None:
        """Return how far the newest row is ahead, at most so many rows; None before the first was read."""
        if self.newest is None:
            return 0
        return max(0, self.newest - position) if self.safe is not None else None

    async def advance(self, connection: Any, position: int) -> bool:
        """Move the horizon as far as possible; return whether it has moved.

        One statement sees the newest number in its snapshot and then reads the locks, in this order.
        """
        row = await connection.fetchrow(self._query, position, self._table, self.is_blocked)
        self.newest = row["newest"]
        running = frozenset(row["writers"])
        before = self.safe
        self._writers &= running
        if not self._writers:
            self.safe = self._candidate if self._candidate is not None else self.safe
            self._candidate, self._writers = self.newest, running
        if not self._writers:
            self.safe = self._candidate if self._candidate is not None else self.safe
        return self.safe != before
