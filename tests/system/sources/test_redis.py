"""Redis streams as a source: gaps that trimming leaves, and what a group remembers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.system.sources.reading import SourceReading, reading
from tests.system.sources.valkey import ValkeyServer, valkey_server
from tidemill.kernel.clock import VirtualClock
from tidemill.sources import Disconnected, Redis


@pytest.fixture
async def valkey(tmp_path: Path) -> AsyncIterator[ValkeyServer]:
    """A server for one test."""
    async with valkey_server(tmp_path) as server:
        yield server


async def add(server: ValkeyServer, *numbers: int, stream: str = "ticks") -> list[str]:
    """Add entries with these numbers, whose ids are the numbers; return the ids."""
    async with server.connected() as client:
        return [(await client.xadd(stream, {"size": number}, f"{number}-0")).decode() for number in numbers]


def ids(read: SourceReading) -> list[str]:
    """Return the ids of the entries that were delivered."""
    return [checkpoint["id"] for checkpoint in read.checkpoints]


async def read_all(server: ValkeyServer, count: int, **options: Any) -> Any:
    """Read entries from the start, and return the checkpoint after the last one."""
    async with reading(Redis(stream="ticks", url=server.url, **options)) as read:
        await read.until(count)
    return read.checkpoints[-1]


async def pending(server: ValkeyServer) -> int:
    async with server.connected() as client:
        return int((await client.xpending("ticks", "readers"))["pending"])


async def until_blocked(server: ValkeyServer) -> None:
    """Wait until the source has read everything, and waits for more."""
    async with asyncio.timeout(10), server.connected() as client:
        while not (await client.info("clients"))["blocked_clients"]:
            pass


async def test_without_a_field_the_event_is_all_fields_as_texts(valkey: ValkeyServer) -> None:
    """What is no text stays bytes."""
    async with valkey.connected() as client:
        await client.xadd("ticks", {"size": 7, "name": "käse", "raw": b"\xff"})
    async with reading(Redis(stream="ticks", url=valkey.url)) as read:
        assert await read.until(1) == [{"size": "7", "name": "käse", "raw": b"\xff"}]


async def test_entries_that_were_trimmed_unread_are_reported(valkey: ValkeyServer) -> None:
    """A checkpoint whose entry has gone: what came between it and the oldest one is lost, and that is no secret."""
    await add(valkey, *range(1, 11))
    async with valkey.connected() as client:
        await client.xtrim("ticks", maxlen=4, approximate=False)
    async with reading(Redis(stream="ticks", url=valkey.url), {"id": "3-0"}) as read:
        assert [event["size"] for event in await read.until(4)] == ["7", "8", "9", "10"]
        (gap,) = read.gaps
        assert "entries up to 3-0 were read, and the oldest one now is 7-0" in gap


async def test_entries_that_were_trimmed_after_they_were_read_are_no_gap(valkey: ValkeyServer) -> None:
    """The stream is emptied while its reader waits, and goes on."""
    await add(valkey, 1, 2)
    async with reading(Redis(stream="ticks", url=valkey.url)) as read, valkey.connected() as client:
        await read.until(2)
        await until_blocked(valkey)
        await client.xtrim("ticks", maxlen=0)
        await add(valkey, 3)
        await read.until(3)
        assert (ids(read), read.gaps) == (["1-0", "2-0", "3-0"], [])


async def test_a_stream_that_began_anew_is_read_from_its_start(valkey: ValkeyServer) -> None:
    """An id that the stream has not reached is another stream's: nothing of this one may be passed over."""
    await add(valkey, 1, 2)
    async with reading(Redis(stream="ticks", url=valkey.url), {"id": "900-0"}) as read:
        await read.until(2)
        assert ids(read) == ["1-0", "2-0"]
        (gap,) = read.gaps
        assert "it ends at 2-0, and entries up to 900-0 were read" in gap


async def test_a_server_that_lost_its_newest_entries_continues_after_what_it_has(tmp_path: Path) -> None:
    """A crash with snapshots alone: the entries that are left were read, and do not come again."""
    async with valkey_server(tmp_path, "--appendonly", "no") as server:
        await add(server, 1, 2, 3)
        async with server.connected() as client:
            await client.save()
        await add(server, 4, 5)
        checkpoint = await read_all(server, 5)
        server.kill()
        await server.start()
        async with reading(Redis(stream="ticks", url=server.url), checkpoint) as read:
            await read.until_true(lambda: bool(read.progress))
            await add(server, 4)
            await read.until(1)
        assert (ids(read), read.progress[0]["id"]) == (["4-0"], "3-0")
        (gap,) = read.gaps
        assert "the server has lost its newest entries, so reading continues after 3-0" in gap
        async with reading(Redis(stream="ticks", url=server.url), checkpoint) as later:
            await add(server, 6)  # beyond the position before the source is back
            await later.until(1)
        assert len(later.gaps) == 1


@pytest.mark.parametrize("first", [1, 7])
async def test_a_stream_that_was_deleted_with_unread_entries_is_reported(valkey: ValkeyServer, first: int) -> None:
    """Whatever the ids of the new entries are: all of them are new."""
    await add(valkey, 1, 2)
    checkpoint = await read_all(valkey, 2)
    await add(valkey, 3, 4)
    async with valkey.connected() as client:
        await client.delete("ticks")
        for number in range(first, first + 5):
            await client.xadd("ticks", {"size": 10 * number}, f"{number}-0")
    async with reading(Redis(stream="ticks", url=valkey.url), checkpoint) as read:
        assert [event["size"] for event in await read.until(5)] == [str(10 * n) for n in range(first, first + 5)]
        (gap,) = read.gaps
        assert "it has restarted" in gap


async def test_entries_that_were_trimmed_after_they_were_read_are_no_gap_for_the_next_life(
    valkey: ValkeyServer,
) -> None:
    """The checkpoint has the number of entries that were read."""
    await add(valkey, 1, 2, 3)
    checkpoint = await read_all(valkey, 3)
    await add(valkey, 4)
    async with valkey.connected() as client:
        await client.xtrim("ticks", maxlen=1, approximate=False)
    await add(valkey, 5)
    async with reading(Redis(stream="ticks", url=valkey.url), checkpoint) as read:
        await read.until(2)
        assert (ids(read), read.gaps) == (["4-0", "5-0"], [])


async def test_a_group_that_was_destroyed_continues_after_what_was_delivered(valkey: ValkeyServer) -> None:
    """It is reported: what was not acknowledged may be missing. A stream that began anew is read from its start."""
    await add(valkey, 1, 2, 3)
    checkpoint = await read_all(valkey, 3, group="readers")
    async with valkey.connected() as client:
        await client.xgroup_destroy("ticks", "readers")
        await add(valkey, 4)
        async with reading(Redis(stream="ticks", group="readers", url=valkey.url), checkpoint) as read:
            assert [event["size"] for event in await read.until(1)] == ["4"]
            (gap,) = read.gaps
            assert "group 'readers' was destroyed after entry 3-0 was delivered; it begins again after 3-0" in gap
        await client.delete("ticks")
        await add(valkey, 1)
        async with reading(Redis(stream="ticks", group="readers", url=valkey.url), checkpoint) as later:
            assert [event["size"] for event in await later.until(1)] == ["1"]
            assert len(later.gaps) == 1


async def abandon(server: ValkeyServer, count: int) -> None:
    """Give entries to a consumer that never comes back, and let its time pass."""
    await add(server, *range(1, count + 1))
    async with server.connected() as client:
        await client.xgroup_create("ticks", "readers", "0")
        await client.xreadgroup("readers", "gone", {"ticks": ">"}, count=count)
        await asyncio.sleep(0.06)  # real time: the server counts how long the entries are idle


async def test_all_abandoned_entries_are_taken_over_at_once(valkey: ValkeyServer) -> None:
    """Not one batch per `claim_after`."""
    await abandon(valkey, 300)
    source = Redis(stream="ticks", group="readers", claim_after="50ms", url=valkey.url)
    async with reading(source, clock=VirtualClock()) as read:
        assert len(await read.until(300)) == 300


async def test_abandoned_entries_that_were_deleted_are_reported(valkey: ValkeyServer) -> None:
    """The server drops them when they are claimed."""
    await abandon(valkey, 4)
    async with valkey.connected() as client:
        await client.xtrim("ticks", maxlen=2, approximate=False)
    source = Redis(stream="ticks", group="readers", claim_after="50ms", url=valkey.url)
    async with reading(source) as read:
        assert [event["size"] for event in await read.until(2)] == ["3", "4"]
        (gap,) = read.gaps
        assert "entries 1-0, 2-0 were deleted before they were delivered" in gap


async def test_a_group_drops_what_the_checkpoint_has_and_repeats_the_rest(valkey: ValkeyServer) -> None:
    """Entries that were given to this consumer and not acknowledged: the checkpoint says which have an effect."""
    await add(valkey, 1, 2, 3, 4)
    async with valkey.connected() as client:
        await client.xgroup_create("ticks", "readers", "0")
        await client.xreadgroup("readers", "tidemill-numbers", {"ticks": ">"}, count=3)
    delivered = {"delivered": ["1-0", "2-0"], "newest": "2-0"}
    async with reading(Redis(stream="ticks", group="readers", url=valkey.url), delivered) as read:
        assert [event["size"] for event in await read.until(2)] == ["3", "4"]
        await until_acknowledged(valkey)


async def until_acknowledged(server: ValkeyServer) -> None:
    async with asyncio.timeout(10):
        while await pending(server):
            pass


async def test_a_group_takes_over_what_another_consumer_has_abandoned(valkey: ValkeyServer) -> None:
    """After the idle time of `claim_after`; not before."""
    await add(valkey, 1, 2)
    async with valkey.connected() as client:
        await client.xgroup_create("ticks", "readers", "0")
        await client.xreadgroup("readers", "gone", {"ticks": ">"}, count=1)
        await asyncio.sleep(0.06)  # real time: the server counts how long the entry is idle
    source = Redis(stream="ticks", group="readers", claim_after="50ms", url=valkey.url)
    async with reading(source) as read:
        assert [event["size"] for event in await read.until(2)] == ["1", "2"]
        await until_acknowledged(valkey)
    async with valkey.connected() as client:
        await add(valkey, 3)
        await client.xreadgroup("readers", "busy", {"ticks": ">"}, count=1)
        await add(valkey, 4)
    async with reading(Redis(stream="ticks", group="readers", url=valkey.url)) as read:
        assert [event["size"] for event in await read.until(1)] == ["4"]
        assert await pending(valkey) >= 1


async def test_a_group_reports_entries_that_were_trimmed_unread(valkey: ValkeyServer) -> None:
    """Before they were given to any consumer, and while they were pending."""
    await add(valkey, *range(1, 11))
    async with valkey.connected() as client:
        await client.xgroup_create("ticks", "readers", "0")
        await client.xreadgroup("readers", "tidemill-numbers", {"ticks": ">"}, count=2)
        await client.xtrim("ticks", maxlen=3, approximate=False)
    async with reading(Redis(stream="ticks", group="readers", url=valkey.url)) as read:
        assert [event["size"] for event in await read.until(3)] == ["8", "9", "10"]
        assert ["entries 1-0, 2-0 were deleted" in gap for gap in read.gaps] == [True, False]
        assert "5 entries after 2-0 were trimmed before group 'readers' read them" in read.gaps[1]
        await until_acknowledged(valkey)


@pytest.mark.parametrize("group", [None, "readers"])
async def test_the_source_says_how_many_entries_wait(valkey: ValkeyServer, group: str | None) -> None:
    """As of the last read, without a request of its own."""
    await add(valkey, *range(1, 101))
    source = Redis(stream="ticks", group=group, url=valkey.url)
    async with reading(source) as read:
        await read.until(100)
        await until_blocked(valkey)
        assert read.context.lag == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Redis(stream="text"), "WRONGTYPE"),
        (Redis(stream="text", group="readers"), "WRONGTYPE"),
        (Redis(stream="ticks", url="redis://user:secret@{server}"), "correct the credentials"),
    ],
)
async def test_what_a_retry_cannot_change_is_refused_for_good(valkey: ValkeyServer, source: Redis, words: str) -> None:
    """G-20: the reason names the stream and the server, and no credentials."""
    async with valkey.connected() as client:
        await client.set("text", "no stream")
    server = valkey.url.removeprefix("redis://")
    url = (source.url or "redis://{server}").format(server=server)
    with pytest.raises(tm.Fail, match=f"Redis stream '{source.stream}' at {server}: .*{words}") as failure:
        await Redis(stream=source.stream, group=source.group, url=url).start(None, SourceReading().make_context())
    assert "secret" not in str(failure.value)


async def test_a_server_that_does_not_answer_is_disconnected() -> None:
    """The reason names the server."""
    with pytest.raises(Disconnected, match=r"Redis stream 'ticks' at 127\.0\.0\.1:1: "):
        await Redis(stream="ticks", url="redis://127.0.0.1:1").start(None, SourceReading().make_context())


async def test_without_an_address_the_source_names_the_setting() -> None:
    """It may come from the call or from the settings of the node."""
    with pytest.raises(tm.Fail, match=r"pass url= to its source, or set redis_url \(TIDEMILL_REDIS_URL\)"):
        await Redis(stream="ticks").start(None, SourceReading().make_context())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stream": ""}, "stream= is a text"),
        ({"claim_after": "soon"}, "claim_after=: 'soon'"),
        ({"consumer": "me"}, "pass group=, too"),
    ],
)
def test_options_are_checked_when_the_source_is_declared(options: dict[str, str], words: str) -> None:
    """Not when it is read."""
    with pytest.raises(tm.DefinitionError, match=words):
        Redis(**{"stream": "ticks", **options})


@pytest.mark.parametrize("group", [None, "readers"])
async def test_a_checkpoint_of_another_source_is_refused(valkey: ValkeyServer, group: str | None) -> None:
    """An accumulator whose source was replaced must not guess where to continue."""
    source = Redis(stream="ticks", group=group, url=valkey.url)
    with pytest.raises(tm.Fail, match=r"the checkpoint 7 is of another source; rename the accumulator"):
        await source.start(7, SourceReading().make_context())


async def test_a_burst_that_trims_what_a_slow_reader_has_not_read_is_reported(valkey: ValkeyServer) -> None:
    """The position was the newest entry, and is trimmed with some of those that followed."""
    await add(valkey, 1, 2)
    async with reading(Redis(stream="ticks", url=valkey.url)) as read, valkey.connected() as client:
        await read.until(2)
        await until_blocked(valkey)
        async with client.pipeline(transaction=True) as pipeline:
            for number in range(3, 10):
                pipeline.xadd("ticks", {"size": number}, f"{number}-0", maxlen=3, approximate=False)
            await pipeline.execute()
        await read.until(5)
        assert ids(read) == ["1-0", "2-0", "7-0", "8-0", "9-0"]
        assert len(read.gaps) == 1
