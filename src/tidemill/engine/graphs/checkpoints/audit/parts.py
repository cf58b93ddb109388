"""Whether stored snapshots can be relied on: each by itself, and those that were written together."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from tidemill.engine.findings import Finding, amount, span, when, wrong
from tidemill.engine.graphs.checkpoints.audit.histories import Generation, History
from tidemill.graphs.snapshot import AccumulatorPart, ReactorPart
from tidemill.storage.ports import JournalEntry, JournalKey, PartKey

TOLERANCE = timedelta(minutes=1)  # by which clocks may differ
FIRST_DAY = datetime(2020, 1, 1, tzinfo=UTC)  # before the first Tidemill: no snapshot is older
KEPT = 2  # generations of each part

_DISK = "Look at the disk, and restore a backup if that matters."
_ONE_NODE = "Make sure that only one node uses this store."

Journals = Mapping[JournalKey, Sequence[JournalEntry]]


def audit_history(history: History, journals: Journals, now: datetime) -> Iterator[Finding]:
    """Look at all generations of one reactor or accumulator."""
    if history.damaged:
        yield _damage(history, journals)
    else:
        yield from _order(history)
    if history.used is not None and history.used.fault:
        yield _unreadable(history, history.used)
    for one in history.generations:
        yield from _time(history, one, now)


def _named(one: Generation) -> str:
    return f"generation {one.part.generation} of {when(one.part.taken_at)}"


def _damage(history: History, journals: Journals) -> Finding:
    which = " and ".join(map(_named, history.damaged))
    used = history.used
    if used is None:
        return wrong(
            history.subject,
            f"its snapshot is damaged ({which}) and there is no other.",
            f"At the next start it is empty{_from_journal(history, 0, journals)}.",
            _DISK,
        )
    if used.part.moment > history.damaged[0].part.moment:
        return wrong(
            history.subject,
            f"its older snapshot is damaged ({which}); the newest, {_named(used)}, is intact.",
            "The next start uses that one, and nothing is lost; the next snapshot replaces the damaged one.",
            "Look at the disk.",
        )
    lost = span(history.damaged[0].part.taken_at - used.part.taken_at)
    position = used.content.position if used.content is not None else 0
    return wrong(
        history.subject,
        f"its newest snapshot is damaged ({which}).",
        f"The next start uses {_named(used)} instead, and what was written together with it steps back too:",
        f"what happened in the {lost} between them is lost{_from_journal(history, position, journals)}.",
        "A node that is running has it all in memory: let it run, its next two snapshots replace the damaged one.",
        _DISK,
    )


def _from_journal(history: History, position: int, journals: Journals) -> str:
    """Say what the journal brings back of an accumulator."""
    entries = journals.get(JournalKey(history.key.tenant, history.key.name), ())
    count = sum(entry.position > position for entry in entries) if history.key.kind == "accumulator" else 0
    return f", save for what {amount(count, 'journal entry', 'journal entries')} bring back" if count else ""


def _unreadable(history: History, used: Generation) -> Finding:
    return wrong(
        history.subject,
        f"{_named(used)} is intact, but this version of Tidemill cannot read it ({used.fault}).",
        "At the next start it is empty. Run the version that wrote it.",
    )


def _order(history: History) -> Iterator[Finding]:
    """Look at the numbers of intact generations."""
    numbers = [one.part.generation for one in history.generations]
    newest = history.generations[0]
    if len(numbers) > KEPT:
        yield wrong(
            history.subject,
            f"{len(numbers)} generations are stored, and never more than {KEPT} are written.",
            f"The next start uses {_named(newest)}. Rows were copied into this store: restore a backup.",
        )
    elif len(numbers) == 1 and numbers[0] != 1:
        yield wrong(
            history.subject,
            f"only {_named(newest)} is stored, and the one before it is missing.",
            "The next start uses it and nothing is lost, but should it be damaged, there is nothing to fall back on.",
            "The next snapshot of a running node mends that; find out who deleted rows of this store.",
        )
    elif len(numbers) == KEPT and numbers[0] != numbers[1] + 1:
        yield wrong(
            history.subject,
            f"generation {numbers[0]} was written last, after generation {numbers[1]}, and does not follow it.",
            f"The next start uses {_named(newest)}, which may not be the newest state. {_ONE_NODE}",
        )


def _time(history: History, one: Generation, now: datetime) -> Iterator[Finding]:
    taken_at = one.part.taken_at
    if taken_at > now + TOLERANCE:
        found = f"generation {one.part.generation} was taken at {when(taken_at)}, {span(taken_at - now)} from now."
    elif taken_at < FIRST_DAY:
        found = f"generation {one.part.generation} was taken at {when(taken_at)}, before there was a Tidemill."
    else:
        return
    yield wrong(
        history.subject,
        found,
        "A clock is wrong, or the row was changed. It is used all the same, and nothing is lost;",
        "set the clock of the node, or of this machine.",
    )


# -- what was written together


def audit_together(histories: Mapping[PartKey, History]) -> Iterator[Finding]:
    """Compare each reactor with the accumulators that feed it: they are always written at one moment."""
    for history in histories.values():
        used = history.used
        if used is not None and isinstance(used.content, ReactorPart):
            for name in sorted(named_in(used.content)):
                key = PartKey(history.key.tenant, "accumulator", name)
                yield from _pair(history, used, key, histories.get(key))


def named_in(content: ReactorPart) -> set[str]:
    """Return the accumulators of which a reactor holds something."""
    named = {*content.cache, *content.dirty}
    named.update(name for name, _, _ in content.queue)
    named.update(name for name, _ in content.consumed)
    return named.union(*(firing.inputs for firing in content.firings))


def _pair(reactor: History, used: Generation, key: PartKey, fed_by: History | None) -> Iterator[Finding]:
    subject = f"accumulator {key.tenant}/{key.name}"
    if fed_by is None:
        yield wrong(
            subject,
            f"nothing is stored of it, though {_named(used)} of {reactor.subject} was written together with it.",
            "At the next start its numbering, its running state, what it holds and how far its source was read",
            "are lost: a source is read from its beginning. Restore a backup.",
        )
    elif fed_by.generations[0].part.moment < used.part.moment:
        yield wrong(
            subject,
            f"its newest snapshot, {_named(fed_by.generations[0])}, is older than {_named(used)} of {reactor.subject},",
            "which was written together with a newer one.",
            "At the next start it goes on from the older one: a source is read again from there, and events of it",
            "that the reactor has seen come twice. Restore a backup.",
        )
    else:
        yield from _positions(reactor, used, fed_by)


def _positions(reactor: History, used: Generation, fed_by: History) -> Iterator[Finding]:
    for one in fed_by.sound:
        if one.part.moment != used.part.moment or not isinstance(one.content, AccumulatorPart):
            continue
        if one.content.position > used.content.position:
            yield wrong(
                reactor.subject,
                f"it has seen the journal up to {used.content.position}, and {fed_by.subject}, written at the same",
                f"moment, is at {one.content.position}.",
                "The next start delivers the entries in between to it once more. " + _ONE_NODE,
            )
