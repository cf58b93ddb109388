"""Plans of faults: a seed decides them."""

from tests.installation.faults import WEIGHTS, make_plan

VICTIMS = ["server-1", "server-2", "worker-1"]


def test_a_seed_repeats_a_plan() -> None:
    """The same faults at the same moments, and others with another seed."""
    plan = make_plan(1, 60.0, VICTIMS, has_database=True)
    assert plan == make_plan(1, 60.0, VICTIMS, has_database=True)
    assert plan != make_plan(2, 60.0, VICTIMS, has_database=True)
    assert plan == sorted(plan)


def test_a_long_plan_has_every_fault_and_every_victim() -> None:
    """Kills and freezes hit all places; a file has no server to restart."""
    plan = make_plan(1, 600.0, VICTIMS, has_database=True)
    assert {fault.kind for fault in plan} == {*WEIGHTS, "blackout"}
    assert {fault.victim for fault in plan if fault.kind == "kill"} == set(VICTIMS)
    assert {fault.kind for fault in make_plan(1, 600.0, VICTIMS, has_database=False)} == {
        *WEIGHTS.keys() - {"restart the database"},
        "blackout",
    }


def test_all_servers_die_in_the_shortest_plan() -> None:
    """Chance does not decide that a worker starts while no server runs."""
    assert [fault.kind for fault in make_plan(1, 10.0, VICTIMS, has_database=False)].count("blackout") == 2
