"""Packages whose preparation hangs: cancelled when they are saved again, and no burden to others."""

import asyncio
from datetime import timedelta

from tests.service.packages.fake_host import MARKET, harness, states, version
from tidemill.packages.loading.preparer import PREPARE_LIMIT, SLOT_TIMEOUT
from tidemill.packages.reconcile.controller import HANDOVER_PATIENCE


async def test_the_preparation_of_a_replaced_version_is_cancelled() -> None:
    """P-12: only the newest wish counts, and nothing waits for the end of an older one, which may never come."""
    async with harness({"a": version(1, hangs=True)}) as it:
        since = it.status("a").since
        await it.advance(3)
        await it.want("a", version(2, hangs=True))
        assert it.status("a").since == since + timedelta(seconds=3)
        await it.want("a", version(3))
        assert it.host.versions() == {"a": "3"}
        assert it.host.count("prepare", "a") == 3
        assert it.host.count("install", "a") == 1
        assert len(it.host.prepared) == 1
        assert states(it, "a") == ["preparing", "loaded"]
        assert "package_failures_total" not in it.metrics()


async def test_a_version_cancelled_and_wanted_again_is_prepared_again() -> None:
    """P-12: also if all that happens before what was begun has ended; giving up is no failure."""
    async with harness({"a": version(1, hangs=True)}) as it:
        it.host.lag["a"] = 20
        for number in (2, 1, 2, 1):
            it.source.want("a", version(number, hangs=True))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await it.want("a", version(1))
        it.host.released.set()
        await it.settle()
        assert it.host.versions() == {"a": "1"}
        assert it.status("a").failures == 0
        assert len(it.host.prepared) == 1


async def test_a_version_that_was_ready_a_moment_before_it_was_replaced_leaves_nothing() -> None:
    """P-12: whatever the moment."""
    for turns in range(12):
        async with harness({"a": version(1, hangs=True)}) as it:
            it.host.released.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            await it.want("a", version(2))
            assert it.host.versions() == {"a": "2"}
            assert len(it.host.prepared) == 1


async def test_a_preparation_that_times_out_by_itself_has_failed() -> None:
    """Its own timeout is not taken for one that was given up."""
    async with harness({"a": version(1, prepare_error=TimeoutError("no answer"))}) as it:
        assert it.status("a").state == "failed"
        assert "no answer" in it.status("a").reason


async def test_hanging_packages_delay_the_next_by_one_slot_timeout() -> None:
    """P-12: places are for short work; what takes longer than a moment counts no more."""
    async with harness({f"h{number}": version(1, hangs=True) for number in range(PREPARE_LIMIT)}) as it:
        await it.want("z", version(1))
        await it.advance(SLOT_TIMEOUT - 0.1)
        assert not it.host.versions()
        await it.advance(0.1)
        assert it.host.versions() == {"z": "1"}
        await it.want("z", version(2))
        assert it.host.versions() == {"z": "2"}


async def test_a_slot_that_no_longer_counts_is_not_freed_twice() -> None:
    """A place that counts no more is not given back to those that do."""
    async with harness({f"h{number}": version(1, hangs=True) for number in range(PREPARE_LIMIT)}) as it:
        await it.advance(SLOT_TIMEOUT)
        for number in range(PREPARE_LIMIT):
            await it.want(f"h{number}", version(2))
        it.host.max_preparing = 0
        for number in range(3 * PREPARE_LIMIT):
            it.source.want(f"p{number:02}", version(1))
        await it.settle()
        assert len(it.host.loaded) == 4 * PREPARE_LIMIT
        assert it.host.max_preparing == PREPARE_LIMIT


async def test_a_package_that_hangs_delays_a_removal_by_a_second() -> None:
    """P-12: it might have taken over what the other one gives up."""
    async with harness({"a": version(1, provides=MARKET), "b": version(1)}) as it:
        await it.want("h", version(1, hangs=True))
        await it.want("b", None)
        assert it.host.versions() == {"a": "1"}  # it gives up nothing
        await it.want("a", None)
        await it.advance(HANDOVER_PATIENCE - 0.1)
        assert it.status("a").waiting_for == (
            "package 'h', which is being prepared and may take over reactor 'market'",
        )
        assert it.host.versions() == {"a": "1"}
        await it.advance(0.1)
        assert it.host.versions() == {}


async def test_names_go_round_between_three_packages() -> None:
    """P-5: each waits for the one that takes over, but not without end."""
    names = {"a": "x", "b": "y", "c": "z"}
    async with harness({name: version(1, provides=frozenset(one)) for name, one in names.items()}) as it:
        for name, one in {"a": "z", "b": "x", "c": "y"}.items():
            it.source.want(name, version(2, provides=frozenset(one)))
        await it.settle()
        await it.advance(2 * HANDOVER_PATIENCE)
        assert it.host.versions() == {"a": "2", "b": "2", "c": "2"}
        assert "package_failures_total" not in it.metrics()
