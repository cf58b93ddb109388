"""The mailbox in PostgreSQL: a table, and notifications when it changes."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.mailbox_port import Mailbox, StoredAnswer, StoredRequest
from tidemill.storage.postgres.database import Database, PostgresTable
from tidemill.storage.postgres.errors import check_timezones
from tidemill.storage.postgres.writes import PostgresUnit, StatementRows
from tidemill.storage.queries import Queries, check_timezone


class PostgresMailbox(PostgresTable, Mailbox):
    """The table `mail`."""

    def __init__(
        self, database: Database, committer: GroupCommitter[PostgresUnit], queries: Queries, sender_id: str
    ) -> None:
        super().__init__(database, committer, queries)
        self._sender_id = sender_id

    async def send(self, request: StoredRequest) -> None:
        check_timezones(request)
        row = (request.id, *request.target, request.sender, request.operation, request.payload, request.at)
        await self._write(StatementRows(self._queries.send_mail, [(*row, self._sender_id)]))

    async def read_requests(self, owner: str, known: Collection[str] = ()) -> list[StoredRequest]:
        return [_decode_request(*row) for row in await self._read(self._queries.mail_to, owner, list(known))]

    async def answer(self, answer: StoredAnswer) -> None:
        await self._write(StatementRows(self._queries.answer_mail, [(*answer, self._sender_id)]))

    async def read_answers(self, sender: str) -> list[StoredAnswer]:
        return [StoredAnswer(*row) for row in await self._read(self._queries.mail_answers_to, sender)]

    async def delete(self, requests: Sequence[StoredRequest]) -> None:
        ids = [(one.id,) for one in requests]
        pushes = [(one.target.tenant, one.target.name, one.id) for one in requests]
        await self._write(
            StatementRows(self._queries.delete_mail, ids, as_arrays=True),
            StatementRows(self._queries.delete_mail_pushes, pushes, as_arrays=True),
        )

    async def delete_before(self, before: datetime) -> None:
        check_timezone(before)
        await self._write(StatementRows(self._queries.delete_old_mail, [(before,)]))


def _decode_request(id: str, tenant: str, kind: Any, name: str, *rest: Any) -> StoredRequest:
    sender, operation, payload, at, applied = rest
    return StoredRequest(
        id=id,
        target=PartKey(tenant, kind, name),
        sender=sender,
        operation=operation,
        payload=payload,
        at=at,
        applied=applied,
    )
