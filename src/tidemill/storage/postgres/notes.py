"""Notes in PostgreSQL."""

from tidemill.kernel.storable import storable
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Note, Notes


class PostgresNotes(Notes):
    """Notes on runs and tasks, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def put(self, note: Note) -> None:
        check_times(note)
        key = (note.run, note.task is not None, note.task or "")
        if note.text:
            written = Rows(self._queries.put_note, [(*key, storable(note.text), note.at)])
        else:
            written = Rows(self._queries.remove_note, [key])
        await self._committer.commit(Write((written,)))

    async def of(self, run: str) -> list[Note]:
        rows = await self._database.read(self._queries.notes, run)
        return [Note(run, task if is_of_task else None, text, at) for _, is_of_task, task, text, at in rows]
