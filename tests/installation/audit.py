"""The audit: compares journal, store and notes, and names everything that breaks a promise.

Each function takes what it compares and returns its findings, so that a test can show that it finds something.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec

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
from tests.installation.package_under_test import COOLDOWN, DECIDED, SLOT_SECONDS, AttemptNote, FiringNote

TOLERANCE = timedelta(milliseconds=50)
"""How much nearer than their cooldown two fires may be: the clocks of servers are read before the store decides."""

FAILED_TASK = '"event": "task failed"'
READER_NAMES = ("stream", "socket", "client")
"""The readers of the feed."""

Findings = list[str]
EventState = Literal["unknown", "acknowledged", "rejected"]


class StoredRun(NamedTuple):
    """A run of the store."""

    id: str
    workflow: str
    state: str
    params: Mapping[str, Any]
    slot: datetime | None = None


class Page(msgspec.Struct, frozen=True):
    """The numbers of one producer that a reactor has applied: growing ones as ranges, and those that did not grow."""

    ranges: list[tuple[int, int]] = []
    late: list[int] = []

    @property
    def growing(self) -> set[int]:
        """The numbers that came in order, for the first time."""
        return {number for first, last in self.ranges for number in range(first, last + 1)}


class Book(NamedTuple):
    """The pages of a reactor, or of one account of it, by producer."""

    reactor: str
    account: str
    pages: Mapping[str, Page]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What clients, store, reactors and notes say in the end."""

    journal: list[Entry]
    runs: list[StoredRun]
    successes: dict[tuple[str, str], int]
    """How many attempts of each run and task have succeeded."""
    fires: list[tuple[str, datetime]]
    """The topics of alarms that have started a run, with the times of their firings."""
    books: list[Book]
    attempts: list[AttemptNote]
    firings: list[FiringNote]
    logged: dict[str, list[str]]
    """The lines that each process has logged."""
    read_before: frozenset[str]
    """Runs that began before all readers of the feed were connected."""
    until: datetime
    """The slots up to this moment have ended."""

    def runs_of(self, workflow: str) -> list[StoredRun]:
        """Return the runs of a workflow."""
        return [run for run in self.runs if run.workflow == workflow]


def audit_all(found: Evidence) -> Findings:
    """Return all findings."""
    states = event_states(found.journal)
    slots = [run.slot for run in found.runs_of("tick") if run.slot is not None]
    return [
        *audit_requests(found.journal),
        *audit_starts(found.journal, found.runs_of("job")),
        *audit_runs(found.runs, found.successes),
        *audit_attempts(found.attempts),
        *audit_events(states, found.books),
        *audit_firings(states, found.firings),
        *audit_decisions(states, found.runs_of("follow"), DECIDED),
        *audit_cooldown(found.fires, COOLDOWN),
        *audit_slots(slots, SLOT_SECONDS, found.until),
        *audit_logs(found.logged),
        *audit_feeds(found.journal, {run.id for run in found.runs}, found.read_before, READER_NAMES),
    ]


def audit_starts(journal: Iterable[Entry], runs: Iterable[StoredRun]) -> Findings:
    """One key has one run, and every repetition of an acknowledged start is answered with it."""
    answers: dict[str, set[str]] = {}
    for entry in journal:
        if isinstance(entry, StartSent):
            answers.setdefault(entry.key, set())
        elif isinstance(entry, StartAnswered):
            answers[entry.key].add(entry.run)
    found = defaultdict[str, list[str]](list)
    for run in runs:
        found[run.params["token"]].append(run.id)
    findings = [f"start {key}: {len(ids)} runs under one key: {ids}" for key, ids in found.items() if len(ids) > 1]
    findings += [f"start {key}: a run that no client asked for" for key in found.keys() - answers.keys()]
    for key, answered in answers.items():
        if len(answered) > 1:
            findings.append(f"start {key}: repetitions were answered with different runs: {sorted(answered)}")
        findings += [f"start {key}: acknowledged run {run} is missing" for run in answered - set(found[key])]
    return findings


def audit_runs(runs: Iterable[StoredRun], successes: Mapping[tuple[str, str], int]) -> Findings:
    """Every run has ended well, and each of its tasks has one result; `successes` counts those by run and task."""
    findings = [f"run {run.id} of {run.workflow} is {run.state}" for run in runs if run.state != "success"]
    return findings + [f"task {task} of {run}: {n} results" for (run, task), n in successes.items() if n != 1]


def audit_attempts(notes: Iterable[AttemptNote]) -> Findings:
    """Attempts of one task begin once each, and one ends before the next one begins."""
    begins, ends = defaultdict[str, list[float]](list), dict[str, float]()
    for note in notes:
        if note.what == "begin":
            begins[note.token].append(note.at)
        else:
            ends[note.token] = note.at
    findings = [f"attempt {token} began {len(times)} times" for token, times in begins.items() if len(times) > 1]
    by_task = defaultdict[str, list[tuple[float, str]]](list)
    for token, times in begins.items():
        by_task[token.rpartition("#")[0]].append((times[0], token))
    for attempts in by_task.values():
        attempts.sort()
        for index, (_, token) in enumerate(attempts):
            for at, later in attempts[index + 1 :]:
                if ends.get(token, at) > at:
                    findings.append(f"attempt {token} ended {ends[token] - at:.3f} s after {later} began")
    return findings


def event_states(journal: Iterable[Entry]) -> dict[Event, EventState]:
    """Return what the clients know about each event in the end."""
    states: dict[Event, EventState] = {}
    for entry in journal:
        if isinstance(entry, EventsSent):
            for event in entry.events:
                if states.get(event) != "acknowledged":
                    states[event] = "unknown"
        elif isinstance(entry, EventsAnswered):
            for event in entry.events:
                if states.get(event) != "acknowledged":
                    states[event] = "acknowledged" if entry.is_accepted else "rejected"
    return states


def audit_events(states: Mapping[Event, EventState], books: Iterable[Book]) -> Findings:
    """Every acknowledged event was applied once, those of a producer and key in order, and no rejected one."""
    applied, findings = set[Event](), Findings()
    for reactor, account, pages in books:
        for producer, page in pages.items():
            growing = page.growing
            applied |= {Event(reactor, producer, number, account) for number in growing | set(page.late)}
            for number in page.late:
                event = Event(reactor, producer, number, account)
                findings.append(f"{event} was applied {'twice' if number in growing else 'out of order'}")
    for event, state in states.items():
        if state == "acknowledged" and event not in applied:
            findings.append(f"{event} was acknowledged and not applied")
        elif state == "rejected" and event in applied:
            findings.append(f"{event} was rejected and applied")
    return findings + [f"{event} was applied, and no client sent it" for event in applied - states.keys()]


def audit_firings(states: Mapping[Event, EventState], notes: Iterable[FiringNote]) -> Findings:
    """Every acknowledged event fired; after a crash, it may do so again."""
    fired = {Event(note.reactor, note.producer, note.number, note.account) for note in notes}
    acknowledged = {event for event, state in states.items() if state == "acknowledged"}
    return [f"{event} was acknowledged and never fired" for event in sorted(acknowledged - fired)]


def audit_decisions(states: Mapping[Event, EventState], runs: Iterable[StoredRun], divisor: int) -> Findings:
    """Every acknowledged decision of the ledger has one run; one whose event is unknown has one at most."""
    counts = Counter((run.params["producer"], run.params["number"]) for run in runs)
    findings = [f"decision {decision}: {n} runs" for decision, n in counts.items() if n > 1]
    for event, state in states.items():
        is_decision = event.reactor == "ledger" and event.number % divisor == 0 and state == "acknowledged"
        if is_decision and (event.producer, event.number) not in counts:
            findings.append(f"decision {event.producer, event.number}: no run")
    return findings


def audit_cooldown(fires: Iterable[tuple[str, datetime]], cooldown: float) -> Findings:
    """Fires about one topic, given with their times, are not nearer than the cooldown."""
    by_topic = defaultdict[str, list[datetime]](list)
    for topic, at in fires:
        by_topic[topic].append(at)
    return [
        f"{topic}: runs of two firings {(later - earlier).total_seconds():.3f} s apart"
        for topic, times in by_topic.items()
        for earlier, later in zip(sorted(times), sorted(times)[1:], strict=False)
        if later - earlier < timedelta(seconds=cooldown) - TOLERANCE
    ]


def audit_slots(slots: Sequence[datetime], interval: float, until: datetime) -> Findings:
    """Every slot from the first one up to a moment has one run."""
    if not slots:
        return ["the schedule has fired no slot"]
    counts, step = Counter(slots), timedelta(seconds=interval)
    findings = [f"slot {slot}: {n} runs" for slot, n in counts.items() if n > 1]
    slot, missing = min(slots), list[str]()
    while slot <= until:
        if slot not in counts:
            missing.append(slot.isoformat())
        slot += step
    return findings + ([f"{len(missing)} slots are missing: {missing}"] if missing else [])


def audit_feeds(
    journal: Iterable[Entry], runs: Collection[str], before: Collection[str], readers: Iterable[str]
) -> Findings:
    """Every reader of the feed got the end of every run once, but for those before it was connected."""
    seen = {reader: Counter[str]() for reader in readers}
    for entry in journal:
        if isinstance(entry, RunSeen):
            seen[entry.reader][entry.run] += 1
    findings = Findings()
    for reader, counts in seen.items():
        findings += [f"{reader} got the end of {run} {n} times" for run, n in counts.items() if n > 1]
        missing = set(runs) - set(before) - counts.keys()
        findings += [f"{reader} did not get the end of {run}" for run in sorted(missing)]
    return findings


def audit_logs(logged: Mapping[str, Iterable[str]]) -> Findings:
    """No task of a process has failed: nothing starts it again, so what it did is not done any more."""
    return [f"{name} logged {line}" for name, lines in logged.items() for line in lines if FAILED_TASK in line]


def audit_requests(journal: Iterable[Entry]) -> Findings:
    """Every request was acknowledged in the end."""
    given_up = [entry for entry in journal if isinstance(entry, GivenUp)]
    return [f"{entry.what}: never acknowledged, the last answer was {entry.answer}" for entry in given_up]
