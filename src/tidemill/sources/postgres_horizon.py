"""The horizon of a table: the number up to which every row that will ever exist is visible.

An INSERT locks the table (`RowExclusiveLock`) before it takes its number, and holds the lock until its transaction has
ended. So a transaction that still has a number below a visible row's holds such a lock at this moment. The horizon
moves to the newest visible number when all transactions that held one after that number was seen have ended; those
that begin later take higher numbers. `pg_locks` shows the locks to every user.

The ids of transactions cannot decide this: an INSERT takes its number before its transaction gets an id.
"""

from typing import Any

from tidemill.sources.postgres_catalogue import TREE

_FIND_WRITERS = """
SELECT newest,
       coalesce((SELECT relfilenode FROM pg_class WHERE oid = $2), 0) AS table_file,
       coalesce((SELECT relfilenode FROM pg_class WHERE oid = $4), 0) AS sequence_file,
       CASE WHEN newest IS NULL AND NOT $3 THEN ARRAY[]::text[] ELSE ARRAY(
    SELECT DISTINCT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND relation IN ({tree})
) END AS writers
FROM ({find_newest}) AS found (newest)
"""


class Horizon:
    """Follows the horizon of one table."""

    def __init__(self, table: int, sequence: int, find_newest: str) -> None:
        self._table = table
        self._sequence = sequence
        self._query = _FIND_WRITERS.format(find_newest=find_newest, tree=TREE.format(table="$2::oid"))
        self._candidate: int | None = None
        self._writers: frozenset[str] = frozenset()
        self.safe: int | None = None
        """Every row up to this number is visible; None before the first."""
        self.newest: int | None = None
        """The newest visible number, as of the last look."""
        self.files = (0, 0)
        """The files of the table and of its sequence, as of the last look."""

    @property
    def is_blocked(self) -> bool:
        """Whether rows are visible that running transactions hold back."""
        return bool(self._writers)

    def count_numbers_after(self, position: int) -> int | None:
        """Return how far the newest row is ahead, at most a number of rows; None before the first was read."""
        if self.newest is None:
            return 0
        return max(0, self.newest - position) if self.safe is not None else None

    async def advance(self, connection: Any, position: int) -> bool:
        """Move the horizon as far as possible; return whether it has moved.

        One statement sees the newest number in its snapshot and then reads the locks, in this order.
        """
        row = await connection.fetchrow(self._query, position, self._table, self.is_blocked, self._sequence)
        self.newest, self.files = row["newest"], (row["table_file"], row["sequence_file"])
        running = frozenset(row["writers"])
        before = self.safe
        self._writers &= running
        if not self._writers:
            self.safe = self._candidate if self._candidate is not None else self.safe
            self._candidate, self._writers = self.newest, running
        if not self._writers:
            self.safe = self._candidate if self._candidate is not None else self.safe
        return self.safe != before
