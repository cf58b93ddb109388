"""What `make measure` prints does not get worse."""

from scripts.measure import AIMS
from tests.architecture.sources import house, listing

LIMITS = {
    "source lines": 109_400,  # new functions add lines: raised from 98,500 for those that first users miss
    "source files": 740,  # raised from 720 for steps, answers and child runs
    "files of at most 60 lines": 150,
    "twins": 12,
    "files of one verb of reactors": 9,
    "methods on one object": 40,
    "methods of the public API on one object": 84,  # one for each operation
    "depth of inheritance": 3,
    "depth of errors": 4,
    "lines of the longest function": 40,
    "files of: route, client and command": 2,
    "files of: operator command": 7,
    "files of: visible column": 6,
    "files of: task option": 3,
    "files of: trigger kind": 3,
}
"""What is reached: lower a limit with the measure, down to its aim; raise none but those of lines and files."""


def test_no_measure_exceeds_its_limit() -> None:
    """Whoever adds a twin, a fragment or a level of inheritance removes one."""
    measures = list(house().measures())
    assert [one.name for one in measures] == list(LIMITS) == list(AIMS)
    exceeded = [
        f"{one.name}: {one.value} instead of at most {LIMITS[one.name]} {one.where}"
        for one in measures
        if one.value > LIMITS[one.name]
    ]
    assert not exceeded, listing(exceeded)
