"""PostgreSQL as a source: rows in the order of their numbers, none missed, whatever the order of the commits."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tidemill as tm
from tests.postgres import PostgresServer
from tests.system.sources.reading import SourceReading, reading
from tests.system.sources.ticks_table import connected, make_table, numbers
from tidemill.kernel.clock import VirtualClock
from tidemill.sources import Disconnected, Postgres


async def look(clock: VirtualClock, read: SourceReading) -> None:
    """Let the source look at its table, until it has read everything that it may."""
    for _ in range(3):  # the first look may find a candidate, the second that it is safe
        due = clock.next_wakeup()
        assert due is not None
        clock.advance_to(due)
        await ready(clock, read)


async def ready(clock: VirtualClock, read: SourceReading) -> None:
    """Wait until the source sleeps."""
    async with asyncio.timeout(20):
        while clock.has_pending_wakeups or clock.next_wakeup() is None:
            assert not read.task.done()
            await asyncio.sleep(0)


async def test_rows_come_in_pages_in_the_order_of_their_numbers(postgres: PostgresServer) -> None:
    """Each with the number to continue after."""
    url = await make_table(postgres, "INSERT INTO ticks (size) SELECT n FROM generate_series(1, 1200) n")
    async with reading(Postgres(table="ticks", url=url)) as read:
        events = await read.until(1200)
        assert events == [{"id": n, "size": n} for n in range(1, 1201)]
        assert numbers(read) == list(range(1, 1201))
    async with reading(Postgres(table="public.ticks", url=url), {"number": 1198}) as read:
        assert await read.until(2) == [{"id": 1199, "size": 1199}, {"id": 1200, "size": 1200}]


async def test_a_notification_wakes_the_source_and_its_content_is_ignored(postgres: PostgresServer) -> None:
    """No time passes on the clock: only the notification can wake it."""
    url = await make_table(postgres)
    source = Postgres(table="ticks", channel="Ticks changed", every="1h", url=url)
    async with reading(source, clock=VirtualClock()) as read, connected(url) as [writer]:
        await writer.execute("INSERT INTO ticks (size) VALUES (7); NOTIFY \"Ticks changed\", 'id = 99'")
        assert await read.until(1) == [{"id": 1, "size": 7}]


async def test_columns_and_where_choose_what_is_read(postgres: PostgresServer) -> None:
    """Identifiers are quoted: capitals and special characters are theirs."""
    url = await make_table(
        postgres,
        'CREATE SCHEMA "My app"',
        'CREATE TABLE "My app"."Odd "" name" ("No." serial, "Kind" text, doc jsonb, other int)',
        """INSERT INTO "My app"."Odd "" name" ("Kind", doc) VALUES ('a', '{"x": [1]}'), ('b', '2'), ('a', 'null')""",
    )
    source = Postgres(
        table='My app.Odd " name', sequence="No.", columns=["Kind", "doc"], where="\"Kind\" = 'a'", url=url
    )
    async with reading(source) as read:
        assert await read.until(2) == [{"Kind": "a", "doc": {"x": [1]}}, {"Kind": "a", "doc": None}]
        assert numbers(read) == [1, 3]


async def test_a_row_whose_transaction_commits_late_is_not_passed_over(postgres: PostgresServer) -> None:
    """The classic gap: number 1 commits after number 2 was visible."""
    url = await make_table(postgres)
    clock = VirtualClock()
    async with reading(Postgres(table="ticks", url=url), clock=clock) as read, connected(url, 2) as [slow, quick]:
        await ready(clock, read)
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute("INSERT INTO ticks (size) VALUES (1)")
        await quick.execute("INSERT INTO ticks (size) VALUES (2)")
        await look(clock, read)
        assert read.events == []
        await transaction.commit()
        await look(clock, read)
        assert numbers(read) == [1, 2]


async def test_a_transaction_that_has_a_number_and_no_id_yet_is_waited_for(postgres: PostgresServer) -> None:
    """A statement takes its number first, and its transaction's id with the row: ids alone would let 2 pass 1."""
    url = await make_table(postgres, "ALTER TABLE ticks ADD note text", "SELECT nextval('ticks_id_seq')")
    clock = VirtualClock()
    async with reading(Postgres(table="ticks", url=url), clock=clock) as read, connected(url, 3) as [slow, quick, gate]:
        await ready(clock, read)
        await gate.execute("SELECT pg_advisory_lock(1)")
        statement = "INSERT INTO ticks (note) VALUES (pg_advisory_lock(1)::text)"
        inserting = asyncio.get_running_loop().create_task(slow.execute(statement))
        while not await gate.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            pass
        await quick.execute("INSERT INTO ticks (note) VALUES ('quick')")
        (has_id,) = await gate.fetchrow(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND pid = $1", slow.get_server_pid()
        )
        assert has_id == 0  # so a snapshot's xmin is already beyond the quick row
        await look(clock, read)
        assert read.events == []
        await gate.execute("SELECT pg_advisory_unlock(1)")
        await inserting
        await look(clock, read)
        assert numbers(read) == [2, 3]
        assert read.events[1]["note"] == "quick"


async def test_rows_below_a_writer_that_never_ends_are_delivered_up_to_it(postgres: PostgresServer) -> None:
    """A writer delays the rows after it, and not those that were there before."""
    url = await make_table(postgres)
    clock = VirtualClock()
    async with reading(Postgres(table="ticks", url=url), clock=clock) as read, connected(url, 2) as [slow, quick]:
        await ready(clock, read)
        await quick.execute("INSERT INTO ticks (size) VALUES (1)")
        await look(clock, read)
        async with slow.transaction():
            await slow.execute("UPDATE ticks SET size = 0 WHERE id = 1")
            await quick.execute("INSERT INTO ticks (size) VALUES (2)")
            await look(clock, read)
            assert numbers(read) == [1]
        await look(clock, read)
        assert numbers(read) == [1, 2]


async def test_rows_that_go_away_behind_a_candidate_do_not_move_the_horizon(postgres: PostgresServer) -> None:
    """The visible row 2 is deleted while the transaction of row 1 runs: 1 is still waited for."""
    url = await make_table(postgres)
    clock = VirtualClock()
    async with reading(Postgres(table="ticks", url=url), clock=clock) as read, connected(url, 2) as [slow, quick]:
        await ready(clock, read)
        async with slow.transaction():
            await slow.execute("INSERT INTO ticks (size) VALUES (1)")
            await quick.execute("INSERT INTO ticks (size) VALUES (2)")
            await look(clock, read)
            await quick.execute("DELETE FROM ticks")
            await look(clock, read)
        await look(clock, read)
        assert numbers(read) == [1]


async def test_writers_of_partitions_are_seen(postgres: PostgresServer) -> None:
    """An INSERT that names the partition locks only that."""
    url = await make_table(
        postgres,
        "CREATE TABLE parted (id bigserial, day int) PARTITION BY RANGE (day)",
        "CREATE TABLE early PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE late PARTITION OF parted FOR VALUES FROM (10) TO (20)",
    )
    clock = VirtualClock()
    async with reading(Postgres(table="parted", url=url), clock=clock) as read, connected(url, 2) as [slow, quick]:
        await ready(clock, read)
        async with slow.transaction():
            await slow.execute("INSERT INTO early (id, day) VALUES (nextval('parted_id_seq'), 1)")
            await quick.execute("INSERT INTO parted (day) VALUES (11)")
            await look(clock, read)
            assert read.events == []
        await look(clock, read)
        assert [event["day"] for event in read.events] == [1, 11]


async def test_writers_of_tables_that_inherit_are_seen(postgres: PostgresServer) -> None:
    """At any depth: their rows are rows of the table, too."""
    url = await make_table(
        postgres,
        "CREATE TABLE child () INHERITS (ticks)",
        "ALTER TABLE child ALTER id SET DEFAULT nextval('ticks_id_seq')",
        "CREATE TABLE grandchild () INHERITS (child)",
        "ALTER TABLE grandchild ALTER id SET DEFAULT nextval('ticks_id_seq')",
    )
    clock = VirtualClock()
    async with reading(Postgres(table="ticks", url=url), clock=clock) as read, connected(url, 2) as [slow, quick]:
        await ready(clock, read)
        async with slow.transaction():
            await slow.execute("INSERT INTO grandchild (size) VALUES (1)")
            await quick.execute("INSERT INTO ticks (size) VALUES (2)")
            await look(clock, read)
            assert read.events == []
        await look(clock, read)
        assert numbers(read) == [1, 2]


OPERATIONS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["insert", "insert", "commit", "rollback", "savepoint", "look"])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(operations=OPERATIONS)
async def test_any_interleaving_of_transactions_is_read_in_order_and_without_a_gap(
    postgres: PostgresServer, operations: list[tuple[int, str]]
) -> None:
    """Every committed row is delivered once, in the order of the numbers, and no other."""
    url = await interleaving_database(postgres)
    clock = VirtualClock()
    async with connected(url, 3) as writers:
        await writers[0].execute("TRUNCATE ticks RESTART IDENTITY")
        async with reading(Postgres(table="ticks", url=url), clock=clock) as read:
            await ready(clock, read)
            for writer, operation in operations:
                await perform(writers[writer], operation, clock, read)
            for writer in writers:
                await perform(writer, "commit", clock, read)
            await look(clock, read)
            committed = [row["id"] for row in await writers[0].fetch("SELECT id FROM ticks ORDER BY id")]
            assert numbers(read) == committed


DATABASES: dict[str, str] = {}


async def interleaving_database(server: PostgresServer) -> str:
    """Return one database for all examples of a process: to make one takes longer than an example."""
    if server.url() not in DATABASES:
        DATABASES[server.url()] = await make_table(server)
    return DATABASES[server.url()]


async def perform(writer: Any, operation: str, clock: VirtualClock, read: SourceReading) -> None:
    """Perform one step of a transaction; one is begun where there is none."""
    if operation == "look":
        await look(clock, read)
    elif operation == "insert":
        await writer.execute(
            "INSERT INTO ticks (size) VALUES (1)"
            if writer.is_in_transaction()
            else "BEGIN; INSERT INTO ticks (size) VALUES (1)"
        )
    elif writer.is_in_transaction():
        undone = "SAVEPOINT s; INSERT INTO ticks (size) VALUES (0); ROLLBACK TO s"
        await writer.execute({"commit": "COMMIT", "rollback": "ROLLBACK", "savepoint": undone}[operation])


async def test_the_source_says_how_many_rows_wait_at_most(postgres: PostgresServer) -> None:
    """By their numbers, of which some may have no row."""
    url = await make_table(postgres)
    clock = VirtualClock()
    async with reading(Postgres(table="ticks", url=url), clock=clock) as read, connected(url, 2) as [slow, quick]:
        await ready(clock, read)
        await quick.execute("INSERT INTO ticks (size) VALUES (1)")
        await look(clock, read)
        assert read.context.lag == 0
        async with slow.transaction():
            await slow.execute("INSERT INTO ticks (size) VALUES (2)")
            await quick.execute("INSERT INTO ticks (size) VALUES (3)")
            await look(clock, read)
            assert read.context.lag == 2
        await look(clock, read)
        assert read.context.lag == 0


async def test_rows_that_were_deleted_after_they_were_read_are_no_gap(postgres: PostgresServer) -> None:
    """An outbox may be emptied."""
    url = await make_table(postgres, "INSERT INTO ticks (size) VALUES (1), (2)", "DELETE FROM ticks")
    async with (
        reading(Postgres(table="ticks", every="5ms", url=url), {"number": 2}) as read,
        connected(url) as [writer],
    ):
        await writer.execute("INSERT INTO ticks (size) VALUES (3)")
        await read.until(1)
        assert (numbers(read), read.gaps) == ([3], [])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Postgres(table="seen"), "it is not a table"),
        (Postgres(table="ticks", sequence="nr"), "no column 'nr'; name its sequence column with sequence="),
        (Postgres(table="texts"), "column 'id' is of type text; a sequence column holds integers"),
        (Postgres(table="cached"), "run ALTER SEQUENCE cached_id_seq CACHE 1"),
        (Postgres(table="shared"), "run ALTER SEQUENCE numbers CACHE 1"),
        (Postgres(table="round"), "run ALTER SEQUENCE round_id_seq NO CYCLE"),
        (Postgres(table="parent"), r"several sequences \(numbers, parent_id_seq\)"),
        (Postgres(table="down"), "counts downwards"),
        (Postgres(table="ticks", where="nonsense"), 'column "nonsense" does not exist'),
        (Postgres(table="ticks", columns=["nr"]), 'column "nr" does not exist'),
    ],
)
async def test_a_table_that_cannot_be_read_in_order_is_refused_for_good(
    postgres: PostgresServer, source: Postgres, words: str
) -> None:
    """G-20: a retry cannot help, and the reason names the remedy."""
    url = await make_table(
        postgres,
        "INSERT INTO ticks (size) VALUES (1)",
        "CREATE VIEW seen AS SELECT * FROM ticks",
        "CREATE TABLE texts (id text)",
        "CREATE TABLE cached (id bigint GENERATED ALWAYS AS IDENTITY (CACHE 20))",
        "CREATE SEQUENCE numbers CACHE 20",
        "CREATE TABLE shared (id bigint DEFAULT nextval('numbers'))",
        "CREATE TABLE round (id int GENERATED ALWAYS AS IDENTITY (MAXVALUE 3 CYCLE))",
        "CREATE TABLE parent (id bigserial)",
        "CREATE TABLE child (id bigint DEFAULT nextval('numbers')) INHERITS (parent)",
        "CREATE TABLE down (id int GENERATED ALWAYS AS IDENTITY (INCREMENT -1))",
    )
    with pytest.raises(tm.Fail, match=f"PostgreSQL table '{source.table}' at 127.0.0.1:.*{words}"):
        async with reading(replace(source, url=url)) as read:
            await read.until(1)


async def test_a_user_needs_no_privilege_except_select(postgres: PostgresServer) -> None:
    """It sees the locks of others, and is refused for good without the privilege."""
    url = await make_table(
        postgres,
        "DROP ROLE IF EXISTS watcher",
        "CREATE ROLE watcher LOGIN",
        "INSERT INTO ticks (size) VALUES (1)",
    )
    source = Postgres(table="ticks", every="5ms", url=url.replace("postgres@", "watcher@"))
    with pytest.raises(tm.Fail, match="permission denied for table ticks; correct the credentials or the grants"):
        async with reading(source) as read:
            await read.until(1)
    clock = VirtualClock()
    async with connected(url, 2) as [slow, quick]:
        await quick.execute("GRANT SELECT ON ticks TO watcher")
        async with reading(source, clock=clock) as read:
            await read.until(1)
            async with slow.transaction():
                await slow.execute("INSERT INTO ticks (size) VALUES (2)")
                await quick.execute("INSERT INTO ticks (size) VALUES (3)")
                await look(clock, read)
                assert numbers(read) == [1]
            await look(clock, read)
            assert numbers(read) == [1, 2, 3]
        await quick.execute("DROP OWNED BY watcher; DROP ROLE watcher")


async def test_a_table_that_does_not_exist_yet_is_waited_for(postgres: PostgresServer) -> None:
    """Migrations of the application may come after the node."""
    url = await postgres.fresh_database()
    with pytest.raises(Disconnected, match="there is no such table"):
        await Postgres(table="ticks", url=url).start(None, SourceReading().make_context())


async def test_credentials_that_are_refused_fail_the_source_for_good(postgres: PostgresServer) -> None:
    """G-20: the reason names the server, and no credentials."""
    url = (await postgres.fresh_database()).replace("postgres@", "stranger:secret@")
    with pytest.raises(tm.Fail, match='role "stranger" does not exist; correct the credentials') as failure:
        await Postgres(table="ticks", url=url).start(None, SourceReading().make_context())
    assert "secret" not in str(failure.value)


async def test_a_lost_connection_ends_the_reading_at_once(postgres: PostgresServer) -> None:
    """Not with the next query: the server closes the connection, and the source hears of it."""
    url = await make_table(postgres, "INSERT INTO ticks (size) VALUES (1)")
    async with reading(Postgres(table="ticks", every="1h", url=url)) as read, connected(url) as [other]:
        await read.until(1)
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemill source numbers' "
            "AND datname = current_database()"
        )
        with pytest.raises(Disconnected, match=r"PostgreSQL table 'ticks' at 127\.0\.0\.1"):
            await read.until(2)


def test_an_interval_that_is_none_is_a_definition_error() -> None:
    """When the source is declared, not when it is read."""
    with pytest.raises(tm.DefinitionError, match="Postgres: every=: '0s' is not a duration"):
        Postgres(table="ticks", every="0s")
