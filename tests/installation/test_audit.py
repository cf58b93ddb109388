"""The audit finds each kind of broken promise, and nothing where all were kept."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.installation.audit import (
    Book,
    EventState,
    Evidence,
    Page,
    StoredRun,
    audit_all,
    audit_attempts,
    audit_cooldown,
    audit_decisions,
    audit_events,
    audit_feeds,
    audit_firings,
    audit_logs,
    audit_requests,
    audit_runs,
    audit_slots,
    audit_starts,
    event_states,
)
from tests.installation.journal import (
    Entry,
    Event,
    EventsAnswered,
    EventsSent,
    GivenUp,
    RunSeen,
    StartAnswered,
    StartSent,
)
from tests.installation.package_under_test import AttemptNote, FiringNote

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIRST, SECOND = Event("ledger", "p", 1), Event("ledger", "p", 2)
KEYED = Event("accounts", "p", 1, "account-1")


def seconds(number: float) -> datetime:
    """Return a moment so many seconds after noon."""
    return NOON + timedelta(seconds=number)


def job(run: str, token: str, state: str = "success") -> StoredRun:
    """Return a run that a client started."""
    return StoredRun(run, "job", state, {"token": token})


def started(key: str, *runs: str) -> list[Entry]:
    """Return the entries of a start that was answered with these runs, one after another."""
    return [StartSent(key), *[StartAnswered(key, run) for run in runs]]


def test_nothing_is_found_where_every_promise_was_kept() -> None:
    """All parts together, on a small installation without faults."""
    events = [Event("ledger", "p", number) for number in range(1, 11)]
    follow = StoredRun("f", "follow", "success", {"producer": "p", "number": 10})
    ticks = [StoredRun(f"t{number}", "tick", "success", {}, seconds(number)) for number in range(3)]
    runs = [job("r", "k"), follow, *ticks]
    journal: list[Entry] = [
        *started("k", "r", "r"),
        EventsSent([*events, KEYED]),
        EventsAnswered([*events, KEYED], True),
    ]
    journal += [RunSeen(reader, run.id, "1") for reader in ("stream", "socket", "client") for run in runs[:-1]]
    evidence = Evidence(
        journal=journal,
        runs=runs,
        successes={(run.id, "task"): 1 for run in runs},
        fires=[("topic-0", seconds(0)), ("topic-0", seconds(4)), ("topic-1", seconds(1))],
        books=[Book("ledger", "", {"p": Page([(1, 10)])}), Book("accounts", "account-1", {"p": Page([(1, 1)])})],
        attempts=[AttemptNote("begin", "r/t#1", 1, 1.0), AttemptNote("end", "r/t#1", 1, 2.0)],
        firings=[FiringNote(one.reactor, one.producer, one.number, one.account) for one in (*events, KEYED)],
        logged={"server-1": ['{"event": "run.started"}']},
        read_before=frozenset([ticks[-1].id]),
        until=seconds(2),
    )
    assert audit_all(evidence) == []


@pytest.mark.parametrize(
    ("journal", "runs", "finding"),
    [
        (started("k", "a"), [job("a", "k"), job("b", "k")], "2 runs under one key"),
        (started("k"), [job("a", "k"), job("b", "k")], "2 runs under one key"),
        (started("k", "a"), [], "acknowledged run a is missing"),
        (started("k", "a", "b"), [job("a", "k"), job("b", "k")], "answered with different runs"),
        (started("k", "a"), [job("a", "other")], "no client asked for"),
    ],
)
def test_starts(journal: list[Entry], runs: list[StoredRun], finding: str) -> None:
    """A double start, a lost one, and another answer to a repetition are found."""
    assert finding in "\n".join(audit_starts(journal, runs))


def test_an_unacknowledged_start_may_have_no_run_or_one() -> None:
    """The client does not know, and both are right."""
    assert audit_starts(started("k"), []) == []
    assert audit_starts(started("k"), [job("a", "k")]) == []


def test_runs_and_results() -> None:
    """A run that did not end well, and a task with two results."""
    assert audit_runs([job("a", "k", "running")], {}) == ["run a of job is running"]
    assert audit_runs([], {("a", "finish"): 2}) == ["task finish of a: 2 results"]


def test_attempts() -> None:
    """Attempts that overlap, and one that began twice; one without an end was killed."""
    first, second = AttemptNote("begin", "r/t#1", 1, 1.0), AttemptNote("begin", "r/t#2", 2, 2.0)
    assert audit_attempts([first, second]) == []
    assert audit_attempts([first, AttemptNote("end", "r/t#1", 1, 1.9), second]) == []
    assert audit_attempts([first, second, AttemptNote("end", "r/t#1", 1, 2.1)]) == [
        "attempt r/t#1 ended 0.100 s after r/t#2 began"
    ]
    assert audit_attempts([first, AttemptNote("begin", "r/t#1", 3, 1.5)]) == ["attempt r/t#1 began 2 times"]


@pytest.mark.parametrize(
    ("state", "page", "finding"),
    [
        ("acknowledged", Page(), "acknowledged and not applied"),
        ("acknowledged", Page([(1, 1)], [1]), "applied twice"),
        ("unknown", Page([(1, 1)], [1]), "applied twice"),
        ("rejected", Page([(1, 1)]), "rejected and applied"),
        ("acknowledged", Page([(2, 2)], [1]), "applied out of order"),
        ("acknowledged", Page([(1, 2)]), "no client sent it"),
    ],
)
def test_events(state: EventState, page: Page, finding: str) -> None:
    """A lost event, one that was applied twice or out of order, and one that was rejected and applied."""
    found = audit_events({FIRST: state}, [Book("ledger", "", {"p": page})])
    assert finding in "\n".join(found)


def test_events_of_one_account_are_not_those_of_another() -> None:
    """The key is a part of the event."""
    books = [Book("accounts", "account-2", {"p": Page([(1, 1)])})]
    assert len(audit_events({KEYED: "acknowledged"}, books)) == 2


def test_a_rejected_event_that_is_sent_again_is_not_rejected_any_more() -> None:
    """Its last answer counts, and an acknowledgement stays one."""
    sent, refused = EventsSent([FIRST]), EventsAnswered([FIRST], is_accepted=False)
    accepted = EventsAnswered([FIRST], is_accepted=True)
    assert event_states([sent, refused]) == {FIRST: "rejected"}
    assert event_states([sent, refused, sent]) == {FIRST: "unknown"}
    assert event_states([sent, refused, sent, accepted]) == {FIRST: "acknowledged"}
    assert event_states([sent, accepted, sent]) == {FIRST: "acknowledged"}


def test_firings() -> None:
    """An acknowledged event that never fired; one may fire again."""
    fired = FiringNote("ledger", "p", 1)
    assert audit_firings({FIRST: "acknowledged", SECOND: "unknown"}, [fired, fired]) == []
    assert audit_firings({FIRST: "acknowledged", SECOND: "acknowledged"}, [fired]) == [
        f"{SECOND} was acknowledged and never fired"
    ]


def test_decisions() -> None:
    """A decision without a run, and one with two."""
    run = StoredRun("f", "follow", "success", {"producer": "p", "number": 2})
    assert audit_decisions({SECOND: "acknowledged", FIRST: "acknowledged"}, [run], 2) == []
    assert audit_decisions({SECOND: "unknown"}, [], 2) == []
    assert audit_decisions({SECOND: "acknowledged"}, [], 2) == ["decision ('p', 2): no run"]
    assert audit_decisions({SECOND: "acknowledged"}, [run, run], 2) == ["decision ('p', 2): 2 runs"]


def test_cooldown() -> None:
    """Two runs about one topic that are too near."""
    fires = [("topic-0", seconds(0)), ("topic-1", seconds(1)), ("topic-0", seconds(3))]
    assert audit_cooldown(fires, 3.0) == []
    assert audit_cooldown(fires, 4.0) == ["topic-0: runs of two firings 3.000 s apart"]


def test_slots() -> None:
    """A slot without a run, at the end too, and one with two."""
    assert audit_slots([seconds(1), seconds(2)], 1.0, seconds(2.5)) == []
    assert "1 slots are missing" in audit_slots([seconds(1), seconds(3)], 1.0, seconds(3))[0]
    assert "1 slots are missing" in audit_slots([seconds(1), seconds(2)], 1.0, seconds(3))[0]
    assert audit_slots([seconds(1), seconds(1)], 1.0, seconds(1)) == [f"slot {seconds(1)}: 2 runs"]
    assert audit_slots([], 1.0, seconds(1)) == ["the schedule has fired no slot"]


def test_feeds() -> None:
    """A reader that missed the end of a run, and one that got it twice."""
    once = [RunSeen("stream", "a", "1")]
    assert audit_feeds(once, ["a", "b"], ["b"], ["stream"]) == []
    assert audit_feeds(once, ["a"], [], ["stream", "socket"]) == ["socket did not get the end of a"]
    assert audit_feeds(once * 2, ["a"], [], ["stream"]) == ["stream got the end of a 2 times"]


def test_logs() -> None:
    """A task of a process that failed."""
    (finding,) = audit_logs({"server-1": ['{"event": "run.started"}', '{"event": "task failed", "task": "standby"}']})
    assert finding.startswith("server-1 logged")
    assert "standby" in finding


def test_requests() -> None:
    """A request that no server acknowledged."""
    assert audit_requests([GivenUp("start k", "404 workflow_not_found")]) == [
        "start k: never acknowledged, the last answer was 404 workflow_not_found"
    ]
