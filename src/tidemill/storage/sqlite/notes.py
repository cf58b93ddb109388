"""Notes in SQLite."""

import sqlite3

from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Note, Notes
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqliteNotes(Notes):
    """The table `notes`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def put(self, note: Note) -> None:
        row = (note.run, note.task, note.text, to_micros(note.at))

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(self._queries.remove_note, row[:2])
            if note.text:
                connection.execute(self._queries.add_note, row)

        await self._database.write(write)

    async def of(self, run: str) -> list[Note]:
        rows = await self._database.rows(self._queries.notes_of, (run,))
        return [Note(run, task, text, from_micros(at)) for run, task, text, at in rows]
