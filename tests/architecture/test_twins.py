"""Twins: two classes that list the same fields. What one of them learns, the other one forgets."""

from tests.architecture.sources import house, listing

ALLOWED = {
    ("AccountRow", "Account"): "the message leaves out how often a person failed to sign in",
    ("ApiKey", "Key"): "resources are values in the domain, and texts on the wire",
    ("ErrorReport", "CallError"): "two wires: an error of another node names its class, an error of a call does not",
    ("Firing", "FiringView"): "an author reads his own objects in the one, and plain values in the other",
    ("JournalStep", "JournalRecord"): "the journal holds objects, its stored form their bytes",
    ("NodeEvent", "FeedEvent"): "a node numbers its events; readers get the id of a place in two sequences",
    ("NodeInputView", "Edge"): "wiring holds parameters and classes, a view their names",
    ("Parameter", "RequestField"): "what author code declares, and what a request carries and where",
    ("PendingFiring", "StoredFiring"): "the one holds inputs and graphs, its stored form bytes and names",
    ("ProcessStatus", "UnitStatus"): "Ray's gateway knows processes, of hosts too; launchers know units of attempts",
    ("RunTransition", "EventRow"): "the row says whose event it is, the message its place in the history of one run",
    ("Transition", "RunEvent"): "the planner decides on one, the store keeps the other, with its attempt, as an array",
}
"""The twins that remain, each with its reason."""


def test_no_twin_is_added() -> None:
    """Embed or inherit the other struct, or answer with it."""
    allowed = {frozenset(pair) for pair in ALLOWED}
    found = [
        f"{one.where} {one.name} and {other.where} {other.name}"
        for one, other in house().twins()
        if frozenset((one.name, other.name)) not in allowed
    ]
    assert not found, listing(found)


def test_the_table_of_twins_is_current() -> None:
    """A pair that is not alike now leaves the table."""
    found = {frozenset((one.name, other.name)) for one, other in house().twins()}
    assert not [pair for pair in ALLOWED if frozenset(pair) not in found]
