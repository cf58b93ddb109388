"""Notes in memory."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc
from tidemill.storage.run_ports import Note, Notes


class MemoryNotes(Notes):
    """Notes by run and task."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def put(self, note: Note) -> None:
        row = all_in_utc(note)

        def write(tables: Tables) -> None:
            notes = tables.notes.setdefault(row.run, {})
            if row.text:
                tables.put(notes, row.task, row)
            else:
                tables.drop(notes, row.task)

        await self._committer.commit(write)

    async def of(self, run: str) -> list[Note]:
        found = self._tables.notes.get(run, {}).values()
        return sorted(found, key=lambda note: (note.task is not None, note.task or ""))
