"""The contract of sources, and kills of server and node under load: PostgreSQL, Valkey, and an MQTT broker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from redis.exceptions import RedisError

import tidemill as tm
from tests.postgres import PostgresServer
from tests.system.made_sources import make_mqtt, make_postgres, make_redis
from tests.system.source_harness import kill_repeatedly
from tests.system.sources.mqtt_broker import MqttBroker, mqtt_broker, open_session
from tests.system.sources.valkey import ValkeyServer, valkey_server
from tidemill.testing.sources import Check, SourceUnderTest, checks

TABLE = "CREATE TABLE numbers (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number int, filler text)"
NOTIFY = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY numbers; RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT ON numbers FOR EACH STATEMENT EXECUTE FUNCTION tell()
"""


async def until_stored(store: Callable[[], Awaitable[None]], *errors: type[Exception]) -> None:
    """Store events; while the server is away, try again."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store()
            except errors:
                await asyncio.sleep(0.02)  # real time: the server is another process


class PostgresUnderTest(SourceUnderTest):
    """A table of its own on a server that is killed."""

    def __init__(self, server: PostgresServer, url: str, source: tm.Source) -> None:
        self._server = server
        self._url = url
        self._source = source

    def make_source(self) -> tm.Source:
        return self._source

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        rows = [(event["number"], event.get("filler")) for event in events]
        await until_stored(lambda: self._insert(rows), asyncpg.PostgresError, asyncpg.InterfaceError, OSError)

    async def append_invalid(self) -> None:
        await self._insert([(None, "")])

    async def _insert(self, rows: list[tuple[int | None, str]]) -> None:
        connection = await asyncpg.connect(self._url)
        await connection.execute(
            "INSERT INTO numbers (number, filler) SELECT n, f FROM unnest($1::int[], $2::text[]) AS t (n, f) "
            "WHERE n IS NULL OR n > (SELECT coalesce(max(number), -1) FROM numbers)",  # after a kill: not twice
            *([row[position] for row in rows] for position in (0, 1)),
        )
        await connection.close()

    async def stop_server(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def start_server(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def open_connections(self) -> int | None:
        count: int = await self._server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tidemill source %'"
        )
        return count


async def make_table(server: PostgresServer) -> str:
    """Make a database with an empty table; return its URL."""
    url = await server.fresh_database()
    connection = await asyncpg.connect(url)
    await connection.execute(f"{TABLE}; {NOTIFY}")
    await connection.close()
    return url


@pytest.fixture(scope="module")
def killed_postgres() -> Iterator[PostgresServer]:
    """A server that the checks kill and start."""
    server = PostgresServer(fsync=True)
    try:
        server.start()
        yield server
    finally:
        server.remove()


POLLING = ("delivers_in_order", "loses_nothing_when_the_server_dies")
"""The checks that differ between polling alone and notifications."""


@pytest.mark.parametrize(
    ("check", "channel"),
    [(check, channel) for check in checks() for channel in ("numbers", None) if channel or check.__name__ in POLLING],
)
async def test_postgres(check: Check, channel: str | None, killed_postgres: PostgresServer) -> None:
    """Woken by notifications, and with polling alone."""
    url = await make_table(killed_postgres)
    await check(PostgresUnderTest(killed_postgres, url, make_postgres([url, channel])))


class ValkeyUnderTest(SourceUnderTest):
    """A stream on a server that is killed."""

    def __init__(self, server: ValkeyServer, source: tm.Source) -> None:
        self._server = server
        self._source = source

    def make_source(self) -> tm.Source:
        return self._source

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        await until_stored(lambda: self._add(events), RedisError)

    async def _add(self, events: Sequence[Mapping[str, Any]]) -> None:
        async with self._server.connected() as client, client.pipeline(transaction=False) as pipeline:
            newest = await client.xrevrange("numbers", count=1)
            stored = int(newest[0][0].split(b"-")[0]) if newest else 0
            for event in events:
                if event["number"] >= stored:  # after a kill: not twice
                    pipeline.xadd("numbers", {"event": msgspec.json.encode(event)}, f"{event['number'] + 1}-0")
            await pipeline.execute()

    async def append_invalid(self) -> None:
        async with self._server.connected() as client:
            await client.xadd("numbers", {"other": b"\xff"}, "1-*")

    async def stop_server(self) -> None:
        self._server.kill()

    async def start_server(self) -> None:
        await self._server.start()

    async def lose_events(self) -> None:
        async with self._server.connected() as client:
            await client.xtrim("numbers", maxlen=0, approximate=False)

    async def open_connections(self) -> int | None:
        async with self._server.connected() as client:
            return sum(one["name"].startswith("tidemill-source-") for one in await client.client_list())


NEEDS_POSITIONS = ("resumes_after_every_checkpoint", "counts_once_after_a_crash")
WITHOUT_POSITIONS = [check for check in checks() if check.__name__ not in NEEDS_POSITIONS]
"""For sources where the server decides: what was acknowledged does not come again."""


@pytest.mark.parametrize("check", checks(loses=True))
async def test_redis(check: Check, tmp_path: Path) -> None:
    """The checkpoint alone decides."""
    async with valkey_server(tmp_path) as server:
        await check(ValkeyUnderTest(server, make_redis([server.url, None])))


@pytest.mark.parametrize("check", WITHOUT_POSITIONS)
async def test_redis_in_a_group(check: Check, tmp_path: Path) -> None:
    """The group decides, and the checkpoint drops what was delivered and not acknowledged."""
    async with valkey_server(tmp_path) as server:
        await check(ValkeyUnderTest(server, make_redis([server.url, "readers"])))


class MqttUnderTest(SourceUnderTest):
    """A topic on a broker that is killed, with a session of the source."""

    def __init__(self, broker: MqttBroker, source: tm.sources.Mqtt) -> None:
        self._broker = broker
        self._source = source

    def make_source(self) -> tm.Source:
        return self._source

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        await self._broker.publish("numbers", *map(msgspec.json.encode, events), qos=self._source.qos)

    async def append_invalid(self) -> None:
        await self._broker.publish("numbers", b"\xff", qos=self._source.qos)

    async def stop_server(self) -> None:
        self._broker.kill()

    async def start_server(self) -> None:
        await asyncio.to_thread(self._broker.start)

    async def open_connections(self) -> int | None:
        return await self._broker.count_connections()


BROKER_FORGETS = "loses_nothing_when_the_server_dies"
"""The broker writes acknowledgements to its disk later, and so repeats messages after a kill; see test_mqtt.py."""
AT_LEAST_ONCE = "acknowledges_after_delivery"
"""With QoS 1, what was delivered and not acknowledged comes again."""


@pytest.mark.parametrize(
    ("check", "qos"),
    [
        (check, qos)
        for check in WITHOUT_POSITIONS
        for qos in (1, 2)
        if check.__name__ != BROKER_FORGETS and (check.__name__, qos) != (AT_LEAST_ONCE, 1)
    ],
)
async def test_mqtt(check: Check, qos: int, tmp_path: Path) -> None:
    """The session decides, and the checkpoint drops what was delivered and not released."""
    async with mqtt_broker(tmp_path) as broker:
        source = make_mqtt([broker.mqtt_url, qos])
        await open_session(source)
        await check(MqttUnderTest(broker, source))


async def test_kills_of_postgres_and_node_lose_and_repeat_nothing(
    killed_postgres: PostgresServer, tmp_path: Path
) -> None:
    """G-6, G-24: the number is committed with the state."""
    argument = [await make_table(killed_postgres), "numbers"]
    subject = PostgresUnderTest(killed_postgres, argument[0], make_postgres(argument))
    await kill_repeatedly(subject, tmp_path, make_postgres, argument)


@pytest.mark.parametrize("group", [None, "readers"])
async def test_kills_of_redis_and_node_lose_and_repeat_nothing(group: str | None, tmp_path: Path) -> None:
    """G-6, G-24: the id, or what was delivered and not acknowledged, is committed with the state."""
    (tmp_path / "server").mkdir()
    async with valkey_server(tmp_path / "server") as server:
        subject = ValkeyUnderTest(server, make_redis([server.url, group]))
        await kill_repeatedly(subject, tmp_path, make_redis, [server.url, group])


async def test_kills_of_redis_and_node_store_each_entry_once_without_a_commit_per_event(tmp_path: Path) -> None:
    """G-6, G-23: reading continues after the id of the snapshot."""
    (tmp_path / "server").mkdir()
    async with valkey_server(tmp_path / "server") as server:
        argument = [server.url, None]
        subject = ValkeyUnderTest(server, make_redis(argument))
        await kill_repeatedly(subject, tmp_path, make_redis, argument, durability="fire")


async def test_kills_of_the_node_lose_and_repeat_no_message_of_mqtt(tmp_path: Path) -> None:
    """G-6, G-24: with QoS 2, what the broker has not released is committed with the state.

    After a lost connection this broker sends unacknowledged messages behind newer ones.
    """
    async with mqtt_broker(tmp_path) as broker:
        source = make_mqtt([broker.mqtt_url, 2])
        await open_session(source)
        subject = MqttUnderTest(broker, source)
        await kill_repeatedly(subject, tmp_path, make_mqtt, [broker.mqtt_url, 2], server_kills=0.0, in_order=False)
