"""The reconciler with packages that depend on one another, and with packages that code has loaded."""

from tests.service.packages.fake_host import BROKEN, MARKET, Harness, harness, states, version
from tidemill.kernel.errors import StoreError

# -- neighbours


async def test_a_subscriber_waits_for_its_publisher_and_says_so() -> None:
    """P-5: it is ready, and loads as soon as the publisher is there."""
    async with harness({"b": version(1, needs=MARKET)}) as it:
        status = it.status("b")
        assert (status.state, status.version, status.waiting_for) == ("waiting", "", ("reactor 'market'",))
        assert it.reconciler.is_idle
        await it.want("a", version(1, provides=MARKET))
        assert it.host.versions() == {"a": "1", "b": "1"}
        assert it.host.count("prepare", "b") == 1
        assert it.clock.monotonic() == 0
        assert states(it, "b") == ["preparing", "waiting", "preparing", "loaded"]


async def test_a_publisher_that_code_loads_counts_too() -> None:
    """P-5: whatever brings it; and without a notification, it is seen before long."""
    for is_notified in (True, False):
        async with harness({"b": version(1, needs=MARKET)}) as it:
            it.host.load_directly("code", "market")
            if is_notified:
                it.reconciler.on_packages_changed()
                await it.settle()
            else:
                assert it.host.versions().keys() == {"code"}
                await it.advance(60)
            assert "b" in it.host.versions()


async def test_a_waiting_version_is_discarded_when_it_is_withdrawn() -> None:
    """P-5."""
    async with harness({"b": version(1, needs=MARKET)}) as it:
        await it.want("b", version(2, needs=MARKET))
        assert len(it.host.prepared) == 1
        await it.want("b", None)
        assert not it.host.prepared
        assert it.reconciler.status() == []


async def test_an_older_version_stays_while_the_newer_waits() -> None:
    """P-5, P-10."""
    async with harness({"b": version(1)}) as it:
        await it.want("b", version(2, needs=MARKET))
        assert (it.status("b").state, it.status("b").version, it.status("b").wanted) == ("waiting", "1.0.0", "2.0.0")
        await it.want("a", version(1, provides=MARKET))
        assert it.host.versions() == {"a": "1", "b": "2"}


async def test_a_publisher_stays_until_it_has_no_subscribers() -> None:
    """P-4: refused, told, and tried again as soon as the subscriber is gone."""
    async with harness({"a": version(1, provides=MARKET), "b": version(1, needs=MARKET)}) as it:
        await it.want("a", None)
        status = it.status("a")
        assert (status.state, status.version, status.wanted) == ("failed", "1.0.0", None)
        assert "bound: ['b']" in status.reason
        assert it.host.versions() == {"a": "1", "b": "1"}
        await it.want("b", None)
        assert not it.host.loaded
        assert it.clock.monotonic() == 0


async def test_a_publisher_and_its_subscribers_go_together() -> None:
    """P-4: the order is found by trying, and takes no time."""
    wishes = {"a": version(1, provides=MARKET), "b": version(1, needs=MARKET), "c": version(1, needs=MARKET)}
    async with harness(wishes) as it:
        it.source.versions.clear()
        it.source.notify()
        await it.settle()
        assert not it.host.loaded
        assert it.clock.monotonic() == 0
        assert it.reconciler.status() == []


async def test_a_publisher_that_is_wanted_again_is_as_it_was() -> None:
    """P-4: a removal that was refused leaves no trace."""
    async with harness({"a": version(1, provides=MARKET), "b": version(1, needs=MARKET)}) as it:
        await it.want("a", None)
        await it.want("a", version(1, provides=MARKET))
        assert (it.status("a").state, it.status("a").reason, it.status("a").failures) == ("loaded", "", 0)
        assert it.host.count("install", "a") == 1


async def test_a_publisher_is_not_swapped_for_one_that_does_not_fit() -> None:
    """P-4: the old version stays until the subscriber has adapted."""
    async with harness({"a": version(1, provides=MARKET), "b": version(1, needs=MARKET)}) as it:
        await it.want("a", version(2))
        assert (it.status("a").state, it.status("a").version) == ("failed", "1.0.0")
        await it.want("b", version(2))
        assert it.host.versions() == {"a": "2", "b": "2"}
        assert it.clock.monotonic() == 0


async def test_a_name_that_another_has_is_taken_over_when_it_is_free() -> None:
    """P-12: of two that cannot both be there, one reports why, and comes when the other goes."""
    async with harness({"a": version(1, provides=MARKET)}) as it:
        await it.want("b", version(1, provides=MARKET))
        assert "taken by 'a'" in it.status("b").reason
        await it.want("a", None)
        assert it.host.versions() == {"b": "1"}
        assert it.clock.monotonic() == 0


async def test_a_name_that_code_gives_up_is_taken_over_too() -> None:
    """P-12: whichever had it."""
    made = Harness()
    made.host.load_directly("code", "market")
    made.source.want("a", version(1, provides=MARKET))
    await made.start()
    assert "taken by 'code'" in made.status("a").reason
    made.host.unload_directly("code")
    made.reconciler.on_packages_changed()
    await made.settle()
    assert made.host.versions() == {"a": "1"}
    assert made.clock.monotonic() == 0
    await made.stop()


async def test_a_change_during_a_try_that_is_refused_is_not_missed() -> None:
    """P-4: whether the try was the first, or one that its time brought about."""
    wishes = {"a": version(1, provides=MARKET), "b": version(1, needs=MARKET)}
    async with harness(wishes) as it:
        it.host.lag["a"] = 40
        it.source.versions.clear()
        it.source.notify()
        await it.settle()
        assert it.host.count("unload", "a") == 2
        assert not it.host.loaded
        assert it.clock.monotonic() == 0
    async with harness(wishes) as it:
        await it.want("a", None)
        it.host.lag["a"] = 40
        it.clock.advance_to(1)
        it.source.want("b", None)
        await it.settle()
        assert it.host.count("unload", "a") == 3
        assert not it.host.loaded
        assert it.clock.monotonic() == 1


async def test_a_conflicting_version_is_retried_when_others_change() -> None:
    """P-12: at once; by itself only slowly, since little else can help."""
    async with harness({"a": version(1, install_error=BROKEN)}) as it:
        await it.advance(29)
        assert it.host.count("install", "a") == 1
        await it.want("b", version(1))
        assert it.host.count("install", "a") == 2
        assert it.status("a").failures == 2
        it.source.notify()
        await it.advance(59)
        assert it.host.count("install", "a") == 2
        await it.advance(1)
        assert it.host.count("install", "a") == 3


async def test_a_rejected_install_is_not_prepared_again() -> None:
    """P-12: it lies ready, however often it is tried, and goes when something else is wanted."""
    async with harness({"a": version(1, provides=MARKET), "b": version(1, provides=MARKET)}) as it:
        [refused] = [name for name in ("a", "b") if it.status(name).state == "failed"]
        [loaded] = {"a", "b"} - {refused}
        await it.advance(600)
        assert it.status(refused).failures > 3
        assert it.host.count("prepare", refused) == 1
        it.host.store_failures = 1
        await it.want(loaded, None)
        await it.advance(60)
        assert it.host.versions() == {refused: "1"}
        assert it.host.count("prepare", refused) == 1
        await it.want(loaded, version(1, provides=MARKET))
        assert len(it.host.prepared) == 2
        await it.want(loaded, None)
        assert it.host.prepared == set(it.host.loaded.values())


# -- what code holds


async def test_packages_loaded_by_code_are_left_alone() -> None:
    """Only what came from the source is removed by it."""
    async with harness() as it:
        it.host.load_directly("mine")
        it.reconciler.on_packages_changed()
        await it.want("a", version(1))
        await it.want("a", None)
        await it.advance(100)
        assert it.host.versions() == {"mine": ""}
        assert it.reconciler.status() == []


async def test_a_name_that_code_holds_is_a_conflict_until_it_is_given_up() -> None:
    """Told, and not fought over."""
    made = Harness()
    made.host.load_directly("a")
    made.source.want("a", version(1))
    await made.start()
    assert made.status("a").state == "failed"
    assert "a package 'a' is loaded already, from elsewhere" in made.status("a").reason
    assert not made.host.trace
    made.host.unload_directly("a")
    made.reconciler.on_packages_changed()
    await made.settle()
    assert made.host.versions() == {"a": "1"}
    assert made.status("a").reason == ""
    await made.stop()


async def test_code_that_takes_a_name_over_keeps_it() -> None:
    """It is no longer what the source has brought, so the source does not remove it."""
    async with harness({"a": version(1)}) as it:
        it.host.load_directly("a")
        it.reconciler.on_packages_changed()
        await it.settle()
        assert (it.status("a").state, it.status("a").version, it.status("a").wanted) == ("failed", "0.9.0", "1.0.0")
        await it.want("a", None)
        assert it.host.versions() == {"a": ""}


async def test_a_package_unloaded_right_after_its_load_is_loaded_again() -> None:
    """P-12: no error comes of it, only another try."""
    async with harness() as it:
        it.host.after_replace = lambda: it.host.unload_directly("a")
        await it.want("a", version(1))
        assert it.host.versions() == {"a": "1"}
        assert it.clock.monotonic() == 0
        assert states(it, "a") == ["preparing", "loaded"]
        assert "package_failures_total" not in it.metrics()


async def test_a_moved_package_reports_its_new_place() -> None:
    """Told, and nothing is loaded anew."""
    async with harness({"a": version(1), "b": version(1, needs=MARKET)}) as it:
        it.source.titles = {"a": "elsewhere", "b": "there"}
        it.source.notify()
        await it.settle()
        assert (it.status("a").title, it.status("a").state) == ("elsewhere", "loaded")
        assert (it.status("b").title, it.status("b").state) == ("there", "waiting")
        assert it.statuses[-2:] == [it.status("a"), it.status("b")]
        assert it.host.count("prepare", "a") == it.host.count("prepare", "b") == 1


async def test_a_conflict_replaces_failures_and_prepared_versions() -> None:
    """What cannot be loaded any more is not kept, and what was wrong with it does not matter."""
    async with harness({"a": version(1, prepare_error=BROKEN), "b": version(1, needs=MARKET)}) as it:
        for name in ("a", "b"):
            it.host.load_directly(name)
        it.reconciler.on_packages_changed()
        await it.settle()
        for name in ("a", "b"):
            assert "from elsewhere" in it.status(name).reason
            assert (it.status(name).failures, it.status(name).problems) == (0, ())
        assert it.host.prepared == set(it.host.loaded.values())


async def test_a_version_loaded_despite_an_error_is_recognised() -> None:
    """P-12: the site is believed, not the error: an answer may be lost after the work was done."""
    async with harness() as it:

        def lose_the_answer() -> None:
            raise StoreError("the answer was lost")

        it.host.after_replace = lose_the_answer
        await it.want("a", version(1))
        await it.advance(1)
        assert it.status("a").state == "loaded"
        assert it.host.count("install", "a") == 1
        await it.want("a", None)
        assert not it.host.loaded
