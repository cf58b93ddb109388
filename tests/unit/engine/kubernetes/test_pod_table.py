"""The pods that a launcher knows: what is news, and what can be removed."""

from msgspec.structs import replace

from tests.unit.engine.kubernetes.launches import CONFIG, KEY
from tests.unit.engine.kubernetes.pods import FAILED, RUNNING, SUCCEEDED, stored_pod
from tidemill.engine.workflows.executors.kubernetes.pod_table import EXIT_TIMEOUT, PodTable

SETTINGS = replace(CONFIG, keep_failed_pods=300.0)


def states(table: PodTable, *statuses: dict[str, object]) -> list[str | None]:
    """Return what each status of one pod says that is new."""
    news = [table.see(stored_pod(one), 0.0) for one in statuses]
    return [None if one is None else one[1].state for one in news]


def test_only_news_are_reported() -> None:
    """A repeated status says nothing, and nothing follows an end."""
    table = PodTable(SETTINGS)
    assert states(table, {}, {}, RUNNING, RUNNING, SUCCEEDED, RUNNING) == [
        "pending",
        None,
        "running",
        None,
        "ended",
        None,
    ]
    assert table.remove(stored_pod(SUCCEEDED), 1.0) is None
    assert table.get(KEY) is None


def test_a_pod_that_is_gone_is_missing() -> None:
    """It is reported once, and forgotten."""
    table = PodTable(SETTINGS)
    table.see(stored_pod(RUNNING), 0.0)
    found = table.remove(stored_pod(RUNNING), 1.0)
    assert found is not None
    assert (found[1].state, found[1].cause) == ("missing", "deleted")
    assert table.remove(stored_pod(RUNNING), 1.0) is None


def test_other_pods_are_ignored() -> None:
    """A pod without the key of an attempt is not Tidemill's business."""
    foreign = stored_pod(RUNNING, annotations={})
    assert PodTable(SETTINGS).see(foreign, 0.0) is None


def test_a_list_that_was_asked_for_earlier_does_not_miss_a_new_pod() -> None:
    """A pod that was created while the list was read is not gone."""
    table = PodTable(SETTINGS)
    table.add_created(stored_pod(), 5.0)
    assert list(table.take_list("tasks", [], 4.0, 6.0)) == []
    assert list(table.take_list("elsewhere", [], 6.0, 6.0)) == []
    ((known, status),) = table.take_list("tasks", [], 6.0, 6.0)
    assert (known.key, status.state) == (KEY, "missing")


def test_a_created_pod_is_news_unless_the_watch_was_faster() -> None:
    """W-11: the executor renews the lease of a pod only if it knows that the pod is pending."""
    table = PodTable(SETTINGS)
    news = table.add_created(stored_pod(), 0.0)
    assert news is not None
    assert news[1].state == "pending"
    assert table.add_created(stored_pod(), 0.0) is None


def test_a_created_pod_does_not_undo_what_the_watch_has_seen() -> None:
    """The answer to the creation may be older than the newest change."""
    table = PodTable(SETTINGS)
    table.see(stored_pod(RUNNING), 0.0)
    table.add_created(stored_pod(), 0.0)
    known = table.get(KEY)
    assert known is not None
    assert known.status is not None
    assert known.status.state == "running"


def test_a_pod_that_was_given_up_is_not_reported_and_stays_until_it_is_removed() -> None:
    """Its attempt was handed back. If its deletion fails, the next sweep finds it."""
    table = PodTable(SETTINGS)
    known = table.abandon(KEY, stored_pod(), 0.0)
    assert table.see(stored_pod(), 0.0) is None
    assert table.is_discarded(stored_pod())
    assert (table.live_keys(), list(table.find_removable(0.0))) == (set(), [known])
    assert table.remove(stored_pod(), 0.0) is None
    assert table.keys() == set()


def test_a_pod_that_follows_one_that_was_given_up_is_another_one() -> None:
    """It has another uid."""
    table = PodTable(SETTINGS)
    table.abandon(KEY, stored_pod(), 0.0)
    assert table.add_created(stored_pod(uid="uid-2"), 0.0) is not None
    assert table.remove(stored_pod(), 0.0) is None
    assert table.live_keys() == {KEY}


def test_pods_are_removed_when_they_have_served() -> None:
    """A failed one stays for a while; one whose result is in but that does not end is removed in the end."""
    for status, removed_at in ((SUCCEEDED, 0.0), (FAILED, 300.0), (RUNNING, EXIT_TIMEOUT)):
        table = PodTable(SETTINGS)
        table.see(stored_pod(status), 0.0)
        assert list(table.find_removable(10**6)) == []
        known = table.get(KEY)
        assert known is not None
        known.discarded_at = 0.0
        assert list(table.find_removable(removed_at)) == [known]
        assert removed_at == 0.0 or list(table.find_removable(removed_at - 1.0)) == []


def test_slots_are_taken_by_pods_that_may_run_something() -> None:
    """A pod that has ended, and is kept to be looked at, takes none, nor one that a lost machine does not confirm."""
    table = PodTable(SETTINGS)
    for number, status in enumerate((RUNNING, {}, FAILED)):
        table.see(stored_pod(status, KEY._replace(attempt=number), f"uid-{number}"), 0.0)
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    table.see(stored_pod(RUNNING, KEY._replace(attempt=9), "uid-9", **deleted), 0.0)
    assert table.live_keys() == {KEY._replace(attempt=0), KEY._replace(attempt=1)}
