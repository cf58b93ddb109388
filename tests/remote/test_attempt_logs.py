"""The log of a remote attempt on its way to a server: batches that a server takes, within bounded memory."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tidemill.attempt.connection import LeaseTimer, ServerConnection
from tidemill.attempt.logs import BUFFER_LIMIT, LogSender
from tidemill.server.app import BODY_LIMIT
from tidemill.telemetry.log_fields import FIELD_LIMIT
from tidemill.telemetry.log_records import LOG_LINE_LIMIT, LogRecord


class _Server(ServerConnection):
    """Takes batches, as a server does."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token", LeaseTimer())
        self.sizes: list[int] = []
        self.records: list[LogRecord] = []

    async def post(self, path: str, body: dict[str, Any] | None, kind: type[Any], timeout: float) -> Any:
        content = msgspec.msgpack.encode(body)
        self.sizes.append(len(content))
        self.records += msgspec.convert(msgspec.msgpack.decode(content)["records"], list[LogRecord])


def record(message: str = "", **fields: object) -> LogRecord:
    """Return a record of the code's log."""
    return LogRecord(at=datetime(2026, 1, 1, tzinfo=UTC), message=message, fields=fields)


@pytest.mark.parametrize(
    "records",
    [
        [record(**{f"field{number}": "x" * FIELD_LIMIT for number in range(20)})] * 300,
        [record(**{f"field{number}": "x" * FIELD_LIMIT for number in range(3000)})],
        [record()] * 200_000,
        [record("\N{SNOWMAN}" * LOG_LINE_LIMIT)] * 100,
    ],
    ids=["many fields", "more fields than a batch holds", "empty lines", "long lines"],
)
async def test_a_batch_is_never_larger_than_a_server_takes(records: list[LogRecord]) -> None:
    """A batch that is refused would end the attempt: what code logs must not decide whether it succeeds."""
    server = _Server()
    logs = LogSender(server)
    logs.add(records)
    await logs.flush()
    assert max(server.sizes) < BODY_LIMIT
    assert [one.message for one in server.records] == [one.message for one in records]


async def test_what_waits_for_a_server_is_bounded_and_what_is_left_out_is_counted() -> None:
    """Code that logs faster than servers answer does not use up the memory of its unit."""
    server = _Server()
    logs = LogSender(server)
    line = record("x" * LOG_LINE_LIMIT)
    kept = BUFFER_LIMIT // len(msgspec.msgpack.encode(line))
    logs.add([line] * (kept + 7))
    await logs.flush()
    logs.add([record("last")])
    await logs.flush()
    assert len(server.records) == kept + 2
    assert [one.message for one in server.records[-2:]] == ["[... 7 records left out ...]", "last"]
