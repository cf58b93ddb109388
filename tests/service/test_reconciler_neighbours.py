"""The reconciler among packages that need one another, and beside those that code has loaded itself."""

from tests.service.sites import BROKEN, MARKET, Bench, bench, states, version
from tidemill.kernel.errors import StoreError

# -- neighbours


async def test_a_subscriber_waits_for_its_publisher_and_says_so() -> None:
    """P-5: it is ready, and loads as soon as the publisher is there."""
    async with bench({"b": version(1, needs=MARKET)}) as it:
        status = it.status("b")
        assert (status.state, status.version, status.waiting_for) == ("waiting", "", ("reactor 'market'",))
        assert it.reconciler.is_idle
        await it.want("a", version(1, brings=MARKET))
        assert it.site.versions() == {"a": "1", "b": "1"}
        assert it.site.count("prepare", "b") == 1
        assert it.clock.monotonic() == 0
        assert states(it, "b") == ["preparing", "waiting", "preparing", "loaded"]


async def test_a_publisher_that_code_loads_counts_too() -> None:
    """P-5: whoever brings it; and if nobody says so, it is seen before long."""
    for is_told in (True, False):
        async with bench({"b": version(1, needs=MARKET)}) as it:
            it.site.load("code", "market")
            if is_told:
                it.reconciler.on_packages_changed()
                await it.calm_down()
            else:
                assert it.site.versions().keys() == {"code"}
                await it.advance(60)
            assert "b" in it.site.versions()


async def test_what_waits_is_thrown_away_when_it_is_no_longer_wanted() -> None:
    """P-5."""
    async with bench({"b": version(1, needs=MARKET)}) as it:
        await it.want("b", version(2, needs=MARKET))
        assert len(it.site.prepared) == 1
        await it.want("b", None)
        assert not it.site.prepared
        assert it.reconciler.status() == []


async def test_an_older_version_stays_while_the_newer_waits() -> None:
    """P-5, P-10."""
    async with bench({"b": version(1)}) as it:
        await it.want("b", version(2, needs=MARKET))
        assert (it.status("b").state, it.status("b").version, it.status("b").wanted) == ("waiting", "1.0.0", "2.0.0")
        await it.want("a", version(1, brings=MARKET))
        assert it.site.versions() == {"a": "1", "b": "2"}


async def test_a_publisher_that_is_needed_stays_until_nobody_needs_it() -> None:
    """P-4: refused, told, and tried again as soon as the subscriber is gone."""
    async with bench({"a": version(1, brings=MARKET), "b": version(1, needs=MARKET)}) as it:
        await it.want("a", None)
        status = it.status("a")
        assert (status.state, status.version, status.wanted) == ("failed", "1.0.0", None)
        assert "bound: ['b']" in status.reason
        assert it.site.versions() == {"a": "1", "b": "1"}
        await it.want("b", None)
        assert not it.site.loaded
        assert it.clock.monotonic() == 0


async def test_a_publisher_and_its_subscribers_go_together() -> None:
    """P-4: the order is found by trying, and takes no time."""
    wishes = {"a": version(1, brings=MARKET), "b": version(1, needs=MARKET), "c": version(1, needs=MARKET)}
    async with bench(wishes) as it:
        it.source.parcels.clear()
        it.source.ring()
        await it.calm_down()
        assert not it.site.loaded
        assert it.clock.monotonic() == 0
        assert it.reconciler.status() == []


async def test_a_publisher_that_is_wanted_again_is_as_it_was() -> None:
    """P-4: a removal that was refused leaves no trace."""
    async with bench({"a": version(1, brings=MARKET), "b": version(1, needs=MARKET)}) as it:
        await it.want("a", None)
        await it.want("a", version(1, brings=MARKET))
        assert (it.status("a").state, it.status("a").reason, it.status("a").failures) == ("loaded", "", 0)
        assert it.site.count("install", "a") == 1


async def test_a_publisher_is_not_swapped_for_one_that_does_not_fit() -> None:
    """P-4: the old version stays until the subscriber has adapted."""
    async with bench({"a": version(1, brings=MARKET), "b": version(1, needs=MARKET)}) as it:
        await it.want("a", version(2))
        assert (it.status("a").state, it.status("a").version) == ("failed", "1.0.0")
        await it.want("b", version(2))
        assert it.site.versions() == {"a": "2", "b": "2"}
        assert it.clock.monotonic() == 0


async def test_a_name_that_another_has_is_taken_over_when_it_is_free() -> None:
    """P-12: of two that cannot both be there, one is told why, and comes when the other goes."""
    async with bench({"a": version(1, brings=MARKET)}) as it:
        await it.want("b", version(1, brings=MARKET))
        assert "taken by 'a'" in it.status("b").reason
        await it.want("a", None)
        assert it.site.versions() == {"b": "1"}
        assert it.clock.monotonic() == 0


async def test_a_name_that_code_gives_up_is_taken_over_too() -> None:
    """P-12: whoever had it."""
    made = Bench()
    made.site.load("code", "market")
    made.source.want("a", version(1, brings=MARKET))
    await made.start()
    assert "taken by 'code'" in made.status("a").reason
    made.site.unload("code")
    made.reconciler.on_packages_changed()
    await made.calm_down()
    assert made.site.versions() == {"a": "1"}
    assert made.clock.monotonic() == 0
    await made.stop()


async def test_a_change_during_a_try_that_is_refused_is_not_missed() -> None:
    """P-4: whether the try was the first, or one that its time brought about."""
    wishes = {"a": version(1, brings=MARKET), "b": version(1, needs=MARKET)}
    async with bench(wishes) as it:
        it.site.lag["a"] = 40
        it.source.parcels.clear()
        it.source.ring()
        await it.calm_down()
        assert it.site.count("remove", "a") == 2
        assert not it.site.loaded
        assert it.clock.monotonic() == 0
    async with bench(wishes) as it:
        await it.want("a", None)
        it.site.lag["a"] = 40
        it.clock.advance_to(1)
        it.source.want("b", None)
        await it.calm_down()
        assert it.site.count("remove", "a") == 3
        assert not it.site.loaded
        assert it.clock.monotonic() == 1


async def test_what_does_not_fit_beside_others_is_judged_anew_when_they_change() -> None:
    """P-12: at once; by itself only slowly, since little else can help."""
    async with bench({"a": version(1, misfit=BROKEN)}) as it:
        await it.advance(29)
        assert it.site.count("install", "a") == 1
        await it.want("b", version(1))
        assert it.site.count("install", "a") == 2
        assert it.status("a").failures == 2
        it.source.ring()
        await it.advance(59)
        assert it.site.count("install", "a") == 2
        await it.advance(1)
        assert it.site.count("install", "a") == 3


async def test_what_was_refused_is_not_prepared_again() -> None:
    """P-12: it lies ready, however often it is tried, and goes when something else is wanted."""
    async with bench({"a": version(1, brings=MARKET), "b": version(1, brings=MARKET)}) as it:
        [refused] = [name for name in ("a", "b") if it.status(name).state == "failed"]
        [loaded] = {"a", "b"} - {refused}
        await it.advance(600)
        assert it.status(refused).failures > 3
        assert it.site.count("prepare", refused) == 1
        it.site.store_failures = 1
        await it.want(loaded, None)
        await it.advance(60)
        assert it.site.versions() == {refused: "1"}
        assert it.site.count("prepare", refused) == 1
        await it.want(loaded, version(1, brings=MARKET))
        assert len(it.site.prepared) == 2
        await it.want(loaded, None)
        assert it.site.prepared == set(it.site.loaded.values())


# -- what code holds


async def test_what_code_has_loaded_is_left_alone() -> None:
    """Only what came from the source is removed by it."""
    async with bench() as it:
        it.site.load("mine")
        it.reconciler.on_packages_changed()
        await it.want("a", version(1))
        await it.want("a", None)
        await it.advance(100)
        assert it.site.versions() == {"mine": ""}
        assert it.reconciler.status() == []


async def test_a_name_that_code_holds_is_a_conflict_until_it_is_given_up() -> None:
    """Told, and not fought over."""
    made = Bench()
    made.site.load("a")
    made.source.want("a", version(1))
    await made.start()
    assert made.status("a").state == "failed"
    assert "a package 'a' is loaded already, from elsewhere" in made.status("a").reason
    assert not made.site.trace
    made.site.unload("a")
    made.reconciler.on_packages_changed()
    await made.calm_down()
    assert made.site.versions() == {"a": "1"}
    assert made.status("a").reason == ""
    await made.stop()


async def test_code_that_takes_a_name_over_keeps_it() -> None:
    """It is no longer what the source has brought, so the source does not remove it."""
    async with bench({"a": version(1)}) as it:
        it.site.load("a")
        it.reconciler.on_packages_changed()
        await it.calm_down()
        assert (it.status("a").state, it.status("a").version, it.status("a").wanted) == ("failed", "0.9.0", "1.0.0")
        await it.want("a", None)
        assert it.site.versions() == {"a": ""}


async def test_what_somebody_unloads_at_once_is_loaded_again() -> None:
    """P-12: no error comes of it, only another try."""
    async with bench() as it:
        replace = it.site._replace

        def unload_at_once(*change: object) -> None:
            replace(*change)  # type: ignore[arg-type]
            it.site._replace = replace
            it.site.unload("a")

        it.site._replace = unload_at_once  # type: ignore[method-assign]
        await it.want("a", version(1))
        assert it.site.versions() == {"a": "1"}
        assert it.clock.monotonic() == 0
        assert states(it, "a") == ["preparing", "loaded"]
        assert "package_failures_total" not in it.figures()


async def test_what_lies_somewhere_else_now_says_so() -> None:
    """Told, and nothing is loaded anew."""
    async with bench({"a": version(1), "b": version(1, needs=MARKET)}) as it:
        it.source.titles = {"a": "elsewhere", "b": "there"}
        it.source.ring()
        await it.calm_down()
        assert (it.status("a").title, it.status("a").state) == ("elsewhere", "loaded")
        assert (it.status("b").title, it.status("b").state) == ("there", "waiting")
        assert it.told[-2:] == [it.status("a"), it.status("b")]
        assert it.site.count("prepare", "a") == it.site.count("prepare", "b") == 1


async def test_a_conflict_takes_the_place_of_what_was_wrong_and_of_what_was_ready() -> None:
    """What cannot be loaded any more is not kept, and what was wrong with it does not matter."""
    async with bench({"a": version(1, unfit=BROKEN), "b": version(1, needs=MARKET)}) as it:
        for name in ("a", "b"):
            it.site.load(name)
        it.reconciler.on_packages_changed()
        await it.calm_down()
        for name in ("a", "b"):
            assert "from elsewhere" in it.status(name).reason
            assert (it.status(name).failures, it.status(name).problems) == (0, ())
        assert it.site.prepared == set(it.site.loaded.values())


async def test_what_is_loaded_although_it_was_said_to_fail_is_our_own() -> None:
    """P-12: the site is believed, not the error: an answer may be lost after the work was done."""
    async with bench() as it:
        replace = it.site._replace

        def lose_the_answer(*change: object) -> None:
            replace(*change)  # type: ignore[arg-type]
            it.site._replace = replace
            raise StoreError("the answer was lost")

        it.site._replace = lose_the_answer  # type: ignore[method-assign]
        await it.want("a", version(1))
        await it.advance(1)
        assert it.status("a").state == "loaded"
        assert it.site.count("install", "a") == 1
        await it.want("a", None)
        assert not it.site.loaded
