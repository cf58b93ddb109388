"""PostgreSQL as a source: tables that begin anew, that are rewritten, and servers that have lost their newest rows."""

import pytest

from tests.postgres import PostgresServer
from tests.system.sources.reading import reading
from tests.system.sources.ticks_table import TABLE, connected, make_table, numbers
from tidemill.sources import Disconnected, Postgres


async def test_a_sequence_that_began_anew_is_reported_and_read_from_its_start(postgres: PostgresServer) -> None:
    """A checkpoint that the sequence has not reached is another table's: nothing of this one may be passed over."""
    url = await make_table(postgres, "INSERT INTO ticks (size) VALUES (1), (2)")
    async with reading(Postgres(table="ticks", url=url), {"number": 900}) as read:
        await read.until(2)
        assert numbers(read) == [1, 2]
        (gap,) = read.gaps
        assert "the sequence is at 2, and rows up to 900 were read" in gap


@pytest.mark.parametrize(
    "statement",
    ["TRUNCATE ticks RESTART IDENTITY", "DROP TABLE ticks; CREATE TABLE ticks (id bigserial PRIMARY KEY, size int)"],
)
async def test_a_sequence_that_begins_anew_while_it_is_read_is_noticed(
    statement: str, postgres: PostgresServer
) -> None:
    """The lower numbers are rows that were never read, also for a reader that stays connected."""
    url = await make_table(postgres, "INSERT INTO ticks (size) VALUES (1), (2), (3)")
    source = Postgres(table="ticks", columns=["size"], every="10ms", url=url)
    async with reading(source) as read, connected(url, 1) as (writer,):
        await read.until(3)
        await writer.execute(statement)
        await writer.execute("INSERT INTO ticks (size) VALUES (4)")
        if "DROP" in statement:
            with pytest.raises(Disconnected, match="another table has this name now"):
                await read.until(4)
            return
        assert [event["size"] for event in await read.until(4)] == [1, 2, 3, 4]
        assert (numbers(read), len(read.gaps)) == ([1, 2, 3, 1], 1)


REFILL = "TRUNCATE ticks RESTART IDENTITY; INSERT INTO ticks (size) SELECT n FROM generate_series(11, 16) n"


async def test_a_table_that_was_truncated_and_filled_again_is_read_from_its_start(postgres: PostgresServer) -> None:
    """Its numbers are beyond the position again, while the source is away and while it reads: none is passed over."""
    url = await make_table(postgres, "INSERT INTO ticks (size) VALUES (1), (2), (3)")
    source = Postgres(table="ticks", every="5ms", url=url)
    async with reading(source) as read:
        await read.until(3)
    async with connected(url) as [writer]:
        await writer.execute(REFILL)
        async with reading(source, read.checkpoints[-1]) as later:
            assert [event["size"] for event in await later.until(6)] == [11, 12, 13, 14, 15, 16]
            await writer.execute(REFILL + "; INSERT INTO ticks (size) VALUES (17)")
            assert [event["size"] for event in await later.until(13)][6:] == [11, 12, 13, 14, 15, 16, 17]
            assert ["was truncated after number" in gap for gap in later.gaps] == [True, True]


@pytest.mark.parametrize("statement", ["VACUUM FULL ticks", "ALTER SEQUENCE ticks_id_seq INCREMENT 2"])
async def test_a_table_that_was_rewritten_continues(statement: str, postgres: PostgresServer) -> None:
    """A new file of the table or of its sequence alone is no new beginning."""
    url = await make_table(postgres, "INSERT INTO ticks (size) VALUES (1), (2)")
    source = Postgres(table="ticks", every="5ms", url=url)
    async with reading(source) as read, connected(url) as [writer]:
        await read.until(2)
        await writer.execute(statement)
        await read.until_true(lambda: bool(read.progress))
        await writer.execute("INSERT INTO ticks (size) VALUES (3)")
        assert [event["size"] for event in await read.until(3)] == [1, 2, 3]
        assert read.gaps == []


async def test_a_server_that_lost_its_newest_rows_continues_after_what_it_has(postgres: PostgresServer) -> None:
    """After a restore or a failover: the rows that are left were read, and do not come again."""
    url = await make_table(postgres, "INSERT INTO ticks (size) SELECT n FROM generate_series(1, 5) n")
    source = Postgres(table="ticks", every="5ms", url=url)
    async with reading(source) as read:
        await read.until(5)
    async with connected(url) as [writer]:
        await writer.execute("DELETE FROM ticks WHERE id > 3; SELECT setval('ticks_id_seq', 3)")  # as a restore does
        async with reading(source, read.checkpoints[-1]) as later:
            await later.until_true(lambda: bool(later.progress))
            await writer.execute("INSERT INTO ticks (size) VALUES (6)")
            assert await later.until(1) == [{"id": 4, "size": 6}]
            (gap,) = later.gaps
            assert "the server has lost its newest rows, so reading continues after 3" in gap
            assert later.progress[0]["number"] == 3


async def test_rows_that_a_condition_leaves_out_are_not_read_again(postgres: PostgresServer) -> None:
    """G-24: the position moves over them, and is known without an event."""
    url = await make_table(postgres, "INSERT INTO ticks (size) SELECT n FROM generate_series(1, 900) n")
    async with reading(Postgres(table="ticks", where="size = 7", url=url)) as read:
        await read.until_true(lambda: bool(read.progress))
    assert (numbers(read), [one["number"] for one in read.progress]) == ([7], [900])


async def test_a_table_that_was_created_anew_is_reported(postgres: PostgresServer) -> None:
    """It may be a restored one: reading continues after the number that was read."""
    url = await make_table(postgres, "INSERT INTO ticks (size) VALUES (1), (2)")
    async with reading(Postgres(table="ticks", url=url)) as read, connected(url) as [writer]:
        await read.until(2)
        await writer.execute(f"DROP TABLE ticks; {TABLE}; INSERT INTO ticks (size) VALUES (1), (2), (3)")
    async with reading(Postgres(table="ticks", url=url), read.checkpoints[-1]) as later:
        assert [event["size"] for event in await later.until(1)] == [3]
        (gap,) = later.gaps
        assert "the table was created again or restored after number 2 was read" in gap


async def test_a_sequence_that_is_behind_explicit_numbers_has_not_begun_anew(postgres: PostgresServer) -> None:
    """Rows of an import have numbers of their own."""
    url = await make_table(
        postgres,
        "INSERT INTO ticks (size) VALUES (1)",
        "INSERT INTO ticks (id, size) OVERRIDING SYSTEM VALUE VALUES (900, 2), (901, 3)",
    )
    async with reading(Postgres(table="ticks", url=url), {"number": 900}) as read:
        await read.until(1)
        assert (numbers(read), read.gaps) == ([901], [])
