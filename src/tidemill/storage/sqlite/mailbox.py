"""The mailbox in SQLite: a table. `change_watch` notices when other processes change it."""

import json
import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from tidemill.storage.graph_ports import PartKey
from tidemill.storage.mailbox_port import Mailbox, StoredAnswer, StoredRequest
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros


class SqliteMailbox(SqliteTable, Mailbox):
    """The table `mail`."""

    async def send(self, request: StoredRequest) -> None:
        row = (request.id, *request.target, request.sender, request.operation, request.payload, to_micros(request.at))
        await self._execute_many(self._queries.send_mail, [row])

    async def read_requests(self, owner: str, known: Collection[str] = ()) -> list[StoredRequest]:
        rows = await self._fetch_all(self._queries.mail_to, (owner, json.dumps(list(known))))
        return [_decode_request(*row) for row in rows]

    async def answer(self, answer: StoredAnswer) -> None:
        await self._execute_many(self._queries.answer_mail, [(answer.payload, answer.request)])

    async def read_answers(self, sender: str) -> list[StoredAnswer]:
        return [StoredAnswer(*row) for row in await self._fetch_all(self._queries.mail_answers_to, (sender,))]

    async def delete(self, requests: Sequence[StoredRequest]) -> None:
        ids = [(one.id,) for one in requests]
        pushes = [(one.target.tenant, one.target.name, one.id) for one in requests]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(self._queries.delete_mail, ids)
            connection.executemany(self._queries.delete_mail_push, pushes)

        await self._write(write)

    async def delete_before(self, before: datetime) -> None:
        await self._execute_many(self._queries.delete_old_mail, [(to_micros(before),)])


def _decode_request(id: str, tenant: str, kind: Any, name: str, *rest: Any) -> StoredRequest:
    sender, operation, payload, at, applied = rest
    return StoredRequest(
        id=id,
        target=PartKey(tenant, kind, name),
        sender=sender,
        operation=operation,
        payload=payload,
        at=from_micros(at),
        applied=applied,
    )
