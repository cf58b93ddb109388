"""The package of the chaos tests: an accumulator that keeps a ledger of everything that was pushed to it."""

from pathlib import Path

MODULE = '''
import tidemill as tm


class Account(tm.Boundary):
    count: int = 0
    total: int = 0
    newest: int = 0
    late: list[int] = []


class Ledger(tm.Boundary):
    accounts: dict[str, Account] = {}


class Entry(tm.Boundary):
    producer: str
    number: int


@tm.passthrough(state=Ledger)
def entries(event: Entry, state: Ledger) -> Ledger:
    """Count what each producer pushed. Its numbers grow: one that does not came late, or was applied twice."""
    before = state.accounts.get(event.producer, Account())
    account = Account(
        count=before.count + 1,
        total=before.total + event.number,
        newest=max(before.newest, event.number),
        late=[*before.late, event.number] if event.number <= before.newest else before.late,
    )
    return Ledger(accounts={**state.accounts, event.producer: account})


ledger = tm.Reactor("ledger", [entries], strategy="sequential", durability="boundary")
'''


def write_package(folder: Path) -> Path:
    """Write the package into a folder of packages, and return that."""
    (folder / "bookkeeping.py").write_text(MODULE)
    return folder
