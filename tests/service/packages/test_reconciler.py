"""The reconciler between a source and a host: it makes the loaded packages match the desired ones."""

import asyncio
import logging
from datetime import timedelta

import pytest

from tests.service.packages.fake_host import BROKEN, MARKET, FakeVersion, Harness, harness, states, version
from tidemill.kernel.errors import DefinitionError, OperationError, Problem, RequestError, StoreError
from tidemill.packages.loading.preparer import PREPARE_LIMIT
from tidemill.packages.loading.probe import ProbeError
from tidemill.packages.status import PACKAGE_METRICS, PackageStatus
from tidemill.telemetry import events
from tidemill.telemetry.metrics import shown_names

# -- load, reload, remove


async def test_what_is_wanted_is_loaded_and_what_is_not_is_removed() -> None:
    """P-12."""
    async with harness({"a": version(1), "b": version(1)}) as it:
        assert it.host.versions() == {"a": "1", "b": "1"}
        await it.want("a", None)
        assert it.host.versions() == {"b": "1"}
        assert [one.name for one in it.reconciler.status()] == ["b"]
        assert states(it, "a") == ["preparing", "loaded", "unloading", "unloaded"]


async def test_a_changed_package_is_swapped_without_being_removed() -> None:
    """P-6, P-12."""
    async with harness({"a": version(1)}) as it:
        await it.want("a", version(2))
        assert it.host.versions() == {"a": "2"}
        assert not it.host.count("unload", "a")
        assert it.status("a").version == it.status("a").wanted == "2.0.0"


async def test_notifications_without_a_change_do_nothing() -> None:
    """P-12: a hint too many does no harm."""
    async with harness({"a": version(1)}) as it:
        told = len(it.statuses)
        for _ in range(10):
            it.source.notify()
            it.reconciler.on_packages_changed()
            await it.settle()
        assert it.host.trace == [("prepare", "a"), ("install", "a")]
        assert len(it.statuses) == told


async def test_a_package_that_a_caller_unloaded_is_loaded_again() -> None:
    """P-12: actual state counts, not what was done once."""
    async with harness({"a": version(1)}) as it:
        it.host.unload_directly("a")
        it.reconciler.on_packages_changed()
        await it.settle()
        assert it.host.versions() == {"a": "1"}


async def test_a_package_withdrawn_during_preparation_leaves_nothing() -> None:
    """P-12: what was prepared and is not wanted is thrown away."""
    async with harness({"a": version(1, hangs=True)}) as it:
        await it.want("a", None)
        it.host.released.set()
        await it.settle()
        assert not it.host.loaded
        assert not it.host.prepared
        assert it.reconciler.status() == []


async def test_an_error_of_an_outdated_version_is_ignored() -> None:
    """P-12."""
    async with harness({"a": version(1, hangs=True, prepare_error=BROKEN)}) as it:
        await it.want("a", version(2))
        it.host.released.set()
        await it.settle()
        assert states(it, "a") == ["preparing", "loaded"]
        assert it.status("a").failures == 0


# -- one never delays another


async def test_a_package_that_hangs_delays_no_other() -> None:
    """P-12."""
    async with harness({"a": version(1, hangs=True), "b": version(1)}) as it:
        assert it.host.versions() == {"b": "1"}
        await it.want("b", version(2))
        await it.want("c", version(1))
        assert it.host.versions() == {"b": "2", "c": "1"}
        assert it.status("a").state == "preparing"
        assert not it.reconciler.is_idle
        it.host.released.set()


async def test_only_so_many_are_prepared_at_once() -> None:
    """Each takes a process: twenty packages do not take twenty."""
    async with harness({f"p{number:02}": version(1) for number in range(20)}) as it:
        assert len(it.host.loaded) == 20
        assert it.host.max_preparing == PREPARE_LIMIT == 8


async def test_a_package_withdrawn_before_its_slot_is_not_prepared() -> None:
    """P-12: one that waits for a place looks again when it has it."""
    async with harness({f"h{number}": version(1, hangs=True) for number in range(PREPARE_LIMIT)}) as it:
        await it.want("z", version(1))
        await it.want("z", None)
        it.host.released.set()
        await it.settle()
        assert not it.host.count("prepare", "z")
        assert "z" not in it.host.versions()


async def test_a_package_that_waited_for_a_slot_is_prepared_in_its_newest_version() -> None:
    """P-12: once, in the newest version, whether that is fit or not; and not at all if that is loaded already."""
    async with harness({"y": version(1), "z": version(1)}) as it:
        for number in range(PREPARE_LIMIT):
            await it.want(f"h{number}", version(1, hangs=True))
        for number in (2, 3):
            await it.want("z", version(number, prepare_error=BROKEN))
        await it.want("y", version(2))
        await it.want("y", version(1))
        it.host.released.set()
        await it.settle()
        assert it.host.count("prepare", "z") == 2
        assert (it.status("z").state, it.status("z").wanted) == ("failed", "3.0.0")
        assert it.host.count("prepare", "y") == 1


# -- failures


async def test_an_invalid_version_is_reported_and_the_last_good_one_stays() -> None:
    """P-10: with file and line, however often it is tried."""
    async with harness({"a": version(1)}) as it:
        await it.want("a", version(2, prepare_error=BROKEN))
        for _ in range(2):
            status = it.status("a")
            assert (status.state, status.version, status.wanted) == ("failed", "1.0.0", "2.0.0")
            assert status.problems == BROKEN.problems
            assert "market.py:3" in status.reason
            await it.advance(86_400)
        assert it.host.versions() == {"a": "1"}


async def times_of_tries(harness: Harness, count: int) -> list[float]:
    """Return when a package was tried, as its status announced it."""
    tries = [harness.clock.monotonic()]
    for number in range(1, count):
        status = harness.status("a")
        assert (status.failures, status.again_at is None) == (number, False)
        assert status.again_at is not None
        before = harness.host.count("prepare", "a")
        await harness.advance((status.again_at - harness.clock.now()) / timedelta(seconds=1) - 0.001)
        assert harness.host.count("prepare", "a") == before
        await harness.advance(0.001)
        assert harness.host.count("prepare", "a") == before + 1
        tries.append(round(harness.clock.monotonic(), 6))
    return tries


async def test_an_invalid_version_is_retried_slowly() -> None:
    """P-12: 30 seconds, and up to ten minutes: who knows what else has changed. A change of it counts at once."""
    async with harness({"a": version(1, prepare_error=BROKEN), "b": version(1)}) as it:
        assert await times_of_tries(it, 8) == [0, 30, 90, 210, 450, 930, 1530, 2130]
        await it.want("a", version(2, prepare_error=BROKEN))
        assert (it.status("a").failures, it.host.count("prepare", "a")) == (1, 9)
        assert it.status("a").again_at == it.clock.now() + timedelta(seconds=30)
        await it.want("a", version(3))
        assert it.host.versions() == {"a": "3", "b": "1"}


async def test_a_transient_failure_is_retried_soon() -> None:
    """P-12: then ever more rarely, as each try may take ten seconds of a processor; a load ends it."""
    killed = ProbeError([Problem(message="importing it was killed with SIGKILL")], is_transient=True)
    async with harness({"a": version(1, prepare_error=killed)}) as it:
        assert await times_of_tries(it, 13) == [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1623, 2223]
        it.source.want_silently("a", version(1))  # the missing part is there, without a notification
        it.source.notify()
        await it.settle()
        await it.advance(600)
        status = it.status("a")
        assert (status.state, status.failures, status.again_at, status.reason) == ("loaded", 0, None, "")


@pytest.mark.parametrize("may_pass", [False, True])
async def test_a_repeated_error_is_logged_once(may_pass: bool, caplog: pytest.LogCaptureFixture) -> None:
    """P-12: also if numbers and what was printed differ; another error, and another version, are reported again."""
    texts = iter(range(1000))

    def error(what: str = "busy") -> ProbeError:
        said = f"{what}: <object at 0x7f{next(texts):x}>; the last that it printed:\n    {next(texts)} o'clock"
        return ProbeError([Problem(message=said)], is_transient=may_pass)

    async with harness({"a": version(1, prepare_error=error())}) as it:
        for _ in range(9):
            it.source.want_silently("a", version(1, prepare_error=error()))
            it.source.notify()
            await it.advance(600)
        assert it.status("a").failures >= 9
        assert len(caplog.records) == 1
        it.source.want_silently("a", version(1, prepare_error=error("gone")))
        it.source.notify()
        await it.advance(600)
        assert len(caplog.records) == 2
        await it.want("a", version(2, prepare_error=error("gone")))
        assert [one.getMessage() for one in caplog.records] == [events.PACKAGE_FAILED] * 3


async def test_error_texts_of_packages_are_sanitized(caplog: pytest.LogCaptureFixture) -> None:
    """P-10: no control characters in the status and in the log, and no line that looks like another's."""
    words = "no \x1b[2J\x07\nfake: a 1.0.0 is sound"
    errors = [DefinitionError.single("package 'a'", words), RequestError(words, code="x"), OSError(words)]
    for error in errors:
        async with harness({"a": version(1, prepare_error=error)}) as it:
            status = it.status("a")
            assert status.reason.endswith("no ·[2J·\n    fake: a 1.0.0 is sound")
            assert [one.message for one in status.problems] in ([], ["no ·[2J·\n    fake: a 1.0.0 is sound"])
    assert all("\x1b" not in one.reason for one in caplog.records)  # type: ignore[attr-defined]
    assert len(caplog.records) == len(errors)


async def test_a_new_version_is_tried_immediately() -> None:
    """P-12: back-off is about one version."""
    away = StoreError("away")
    async with harness({"a": version(1, prepare_error=away)}) as it:
        await it.advance(20)
        assert it.status("a").failures == 5
        await it.want("a", version(2, prepare_error=away))
        assert it.status("a").failures == 1
        await it.want("a", version(3))
        assert it.host.versions() == {"a": "3"}
        assert it.status("a").failures == 0
        assert it.status("a").reason == ""


async def test_back_to_the_loaded_version_is_no_failure() -> None:
    """P-10: a user who takes a bad change back sees the package as loaded."""
    async with harness({"a": version(1)}) as it:
        await it.want("a", version(2, prepare_error=BROKEN))
        await it.want("a", version(1))
        assert it.status("a").state == "loaded"
        assert it.host.count("install", "a") == 1
        await it.want("a", version(2, prepare_error=BROKEN))
        assert it.status("a").failures == 1
        assert it.host.count("prepare", "a") == 3


@pytest.mark.parametrize("error", [OperationError("no process"), StoreError("away"), OSError("disk full"), KeyError(1)])
async def test_other_failures_are_retried_with_growing_delays(error: Exception) -> None:
    """P-12: 1, 2, 4 ... 60 seconds."""
    async with harness({"a": version(1, prepare_error=error), "b": version(1)}) as it:
        tries = [it.clock.monotonic()]
        for _ in range(8):
            again_at = it.status("a").again_at
            assert again_at is not None
            await it.advance((again_at - it.clock.now()) / timedelta(seconds=1))
            tries.append(it.clock.monotonic())
        assert tries == [0, 1, 3, 7, 15, 31, 63, 123, 183]
        assert it.host.count("prepare", "a") == it.status("a").failures == 9
        assert it.host.versions() == {"b": "1"}


async def test_a_store_that_comes_back_is_enough() -> None:
    """P-12: what was prepared belongs to the site, so it is prepared anew."""
    async with harness() as it:
        it.host.store_failures = 3
        await it.want("a", version(1))
        await it.advance(7)
        assert it.host.versions() == {"a": "1"}
        assert it.host.count("install", "a") == 4
        assert len(it.host.prepared) == 1


async def test_a_package_that_cannot_be_read_is_reported() -> None:
    """P-10: a manifest that is damaged; and P-12: a file that is missing for a moment comes again by itself."""
    gone = RequestError("there is no file", code="no_file", status=404)
    async with harness(
        {"a": FakeVersion(version="", digest="1", read_error=BROKEN), "b": version(1, read_error=gone)}
    ) as it:
        assert it.status("a").state == it.status("b").state == "failed"
        assert it.status("a").again_at == it.clock.now() + timedelta(seconds=30)
        assert it.status("b").again_at == it.clock.now() + timedelta(seconds=1)


async def test_a_listener_that_fails_does_not_prevent_a_load(caplog: pytest.LogCaptureFixture) -> None:
    """What prints is not what loads."""

    def listener(_: PackageStatus) -> None:
        raise BrokenPipeError

    made = Harness(on_status=listener)
    made.source.want("a", version(1))
    await made.start()
    assert made.host.versions() == {"a": "1"}
    await made.stop()
    assert "a listener failed" in caplog.text


# -- the source


async def test_a_source_that_fails_removes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """P-12: told once, asked less and less often, and everything loaded stays."""
    async with harness({"a": version(1)}) as it:
        it.source.error = OSError("no such folder")
        await it.want("a", None)
        assert "no such folder" in it.reconciler.source_error
        looks = it.source.reads
        await it.advance(31)
        assert it.source.reads == looks + 5
        assert it.host.versions() == {"a": "1"}
        assert it.status("a").state == "loaded"
        it.source.error = None
        await it.advance(32)
        assert not it.host.loaded
        assert it.reconciler.source_error == ""
        looks = it.source.reads
        it.source.error = OSError("no such folder")
        it.source.notify()
        await it.advance(1)
        assert it.source.reads == looks + 2, "the delays begin anew"
    told = [one.getMessage() for one in caplog.records if one.getMessage() == events.PACKAGE_SOURCE_FAILED]
    assert len(told) == 2
    assert events.PACKAGE_SOURCE_RECOVERED in caplog.text


async def test_packages_are_retried_while_the_source_is_down() -> None:
    """P-12: what was wanted last is still tried."""
    async with harness({"a": version(1, prepare_error=BROKEN)}) as it:
        it.host.store_failures = 2
        await it.want("b", version(1))
        it.source.error = StoreError("away")
        it.source.notify()
        await it.advance(5)
        assert it.host.versions() == {"b": "1"}


async def test_a_source_without_notifications_is_polled() -> None:
    """P-12."""
    made = Harness()

    async def changed() -> None:
        raise OSError("too many watches")

    made.source.wait_for_change = changed
    await made.start()
    made.source.want_silently("a", version(1))
    await made.advance(60)
    assert made.host.versions() == {"a": "1"}
    assert made.source.reads < 20
    await made.stop()


# -- beginning and end


async def test_settled_means_that_everything_was_tried() -> None:
    """For `tidemill dev`, which sums up then: also what failed, what waits, and what others made possible."""
    made = Harness()
    made.host.lag.update(a=5, b=5)
    made.source.want("a", version(1, needs=MARKET))
    made.source.want("b", version(1, provides=MARKET, hangs=True))
    made.source.want("c", version(1, prepare_error=BROKEN))
    made.source.want("d", version(1, needs=frozenset(["other"])))
    async with asyncio.TaskGroup() as group:
        summary = group.create_task(sum_up(made), name="test: sum up")
        await made.start()
        assert not summary.done()
        made.host.released.set()
    assert summary.result() == {"a": "loaded", "b": "loaded", "c": "failed", "d": "waiting"}
    await made.stop()


async def sum_up(harness: Harness) -> dict[str, str]:
    """Return the states at the moment when everything is settled."""
    await harness.reconciler.wait_until_settled()
    return {one.name: one.state for one in harness.reconciler.status()}


async def test_nothing_wanted_is_settled_at_once() -> None:
    """And idle; before the first look it is neither."""
    made = Harness()
    assert not made.reconciler.is_idle
    await made.start()
    async with asyncio.timeout(1):
        await made.reconciler.wait_until_settled()
    assert made.reconciler.is_idle
    await made.stop()


async def test_the_end_leaves_what_is_loaded_and_nothing_else() -> None:
    """P-12: what hangs is given up, what waits is thrown away, no task is left."""
    async with harness({"a": version(1), "b": version(1, needs=MARKET), "c": version(1, hangs=True)}) as it:
        pass
    assert it.host.versions() == {"a": "1"}
    assert len(it.host.prepared) == 1
    assert it.reconciler.is_idle


async def test_the_status_has_times() -> None:
    """Since when, and when again."""
    async with harness({"a": version(1, prepare_error=StoreError("away"))}) as it:
        await it.advance(2)
        status = it.status("a")
        start = it.clock.now() - timedelta(seconds=2)
        assert status.since == start + timedelta(seconds=1)
        assert status.again_at == start + timedelta(seconds=3)
        assert (status.failures, status.reason) == (2, "away")


async def test_settings_without_delays_do_not_make_it_spin() -> None:
    """A failing package is tried ten times a second at most."""
    async with harness(backoff=0.0) as it:
        await it.want("a", version(1, prepare_error=StoreError("away")))
        await it.advance(1)
        assert 2 <= it.host.count("prepare", "a") <= 11


# -- what is written down


async def test_changes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Tenant, package, version and reason; a failure again and again is reported once."""
    caplog.set_level(logging.INFO, "tidemill")
    async with harness({"a": version(1), "b": version(1, needs=MARKET)}) as it:
        await it.want("a", version(2))
        await it.want("a", version(3, prepare_error=StoreError("away")))
        await it.advance(300)
        await it.want("a", None)
    told = [(one.getMessage(), one.package, one.version) for one in caplog.records]  # type: ignore[attr-defined]
    assert told == [
        (events.PACKAGE_WAITING_FOR_DEPENDENCIES, "b", "1.0.0"),
        (events.PACKAGE_LOADED, "a", "1.0.0"),
        (events.PACKAGE_RELOADED, "a", "2.0.0"),
        (events.PACKAGE_FAILED, "a", "3.0.0"),
        (events.PACKAGE_REMOVED, "a", "2.0.0"),
    ]
    assert {one.tenant for one in caplog.records} == {"public"}  # type: ignore[attr-defined]
    assert [one.reason for one in caplog.records if hasattr(one, "reason")] == ["reactor 'market'", "away"]


async def test_a_failure_after_a_success_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    """A streak ends with what goes well; an unforeseen error is reported with its lines."""
    bug = KeyError("unforeseen")
    async with harness({"a": version(1, prepare_error=bug)}) as it:
        await it.want("a", version(2))
        await it.want("a", version(3, prepare_error=bug))
        await it.advance(10)
    assert [one.getMessage() for one in caplog.records] == [events.PACKAGE_FAILED] * 2
    assert caplog.text.count("Traceback") == 2


async def test_metrics_count_what_happens() -> None:
    """Every one of them, and no others."""
    async with harness({"a": version(1), "b": version(1, needs=MARKET), "c": version(1, prepare_error=BROKEN)}) as it:
        await it.want("a", version(2))
        await it.want("d", version(1))
        await it.want("d", None)
        it.source.error = StoreError("away")
        it.source.notify()
        await it.settle()
        assert it.metrics() == {
            "packages_waiting": 1,
            "packages_failed": 1,
            "package_loads_total": 3,
            "package_removals_total": 1,
            "package_failures_total": 1,
            "package_source_errors_total": 1,
        }
        assert {*it.metrics(), "packages_loaded"} == set(
            shown_names(PACKAGE_METRICS)
        )  # what is loaded others count too
