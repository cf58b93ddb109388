"""The mailbox in memory: all stores with the same tables are notified of mail."""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from tidemill.storage.graph_ports import JournalKey
from tidemill.storage.mailbox_port import Mailbox, StoredAnswer, StoredRequest
from tidemill.storage.memory.tables import MemoryTable, Tables, to_utc
from tidemill.storage.queries import check_timezone


class MemoryMailbox(MemoryTable, Mailbox):
    """Requests by id, and answers by request."""

    async def send(self, request: StoredRequest) -> None:
        row = replace(request, at=to_utc(request.at))
        await self._committer.commit(lambda tables: tables.put(tables.mail, row.id, row))
        self._notify()

    async def read_requests(self, owner: str, known: Collection[str] = ()) -> list[StoredRequest]:
        owned = {key for key, row in self._tables.part_owners.items() if row.owner == owner}
        seen = {*self._tables.mail_answers, *known}
        requests = (one for one in self._tables.mail.values() if one.target in owned and one.id not in seen)
        return [self._with_applied(one) for one in sorted(requests, key=lambda request: request.id)]

    def _with_applied(self, request: StoredRequest) -> StoredRequest:
        push = self._tables.pushes.get((JournalKey(request.target.tenant, request.target.name), request.id))
        return request if push is None else replace(request, applied=push.answer)

    async def answer(self, answer: StoredAnswer) -> None:
        def write(tables: Tables) -> None:
            if answer.request in tables.mail and answer.request not in tables.mail_answers:
                tables.put(tables.mail_answers, *answer)

        await self._committer.commit(write)
        self._notify()

    async def read_answers(self, sender: str) -> list[StoredAnswer]:
        answers = sorted(self._tables.mail_answers.items())
        return [StoredAnswer(*one) for one in answers if self._tables.mail[one[0]].sender == sender]

    async def delete(self, requests: Sequence[StoredRequest]) -> None:
        def write(tables: Tables) -> None:
            for one in requests:
                _delete_request(tables, one.id)
                tables.delete(tables.pushes, (JournalKey(one.target.tenant, one.target.name), one.id))

        await self._committer.commit(write)

    async def delete_before(self, before: datetime) -> None:
        check_timezone(before)

        def write(tables: Tables) -> None:
            for one in [one.id for one in tables.mail.values() if one.at < before]:
                _delete_request(tables, one)

        await self._committer.commit(write)

    def _notify(self) -> None:
        for on_change in tuple(self._tables.mail_listeners):
            on_change()


def _delete_request(tables: Tables, id: str) -> None:
    tables.delete(tables.mail, id)
    tables.delete(tables.mail_answers, id)
