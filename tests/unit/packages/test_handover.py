"""Handovers: for which packages one waits that takes over or gives up names."""

from tidemill.packages.deploy.change import NameClaim
from tidemill.packages.reconcile.handover import Names, PackagePlan, awaited_owners, awaited_takers
from tidemill.packages.status import PackageKey


def claims(names: str) -> Names:
    """Return the reactors of these one-letter names."""
    return frozenset(NameClaim("reactor", "public", name) for name in names)


def plan(name: str, loaded: str, arriving: str | None, *, is_ready: bool = False) -> PackagePlan:
    """Return the plan of a package."""
    names = None if arriving is None else claims(arriving)
    return PackagePlan(key=PackageKey("public", name), loaded=claims(loaded), arriving=names, is_ready=is_ready)


def test_names_are_leaving_as_far_as_that_is_known() -> None:
    plans = [plan("a", "xy", "y"), plan("b", "z", None), plan("c", "v", ""), plan("d", "w", "wx")]
    assert [one.leaving for one in plans] == [claims("x"), claims(""), claims("v"), claims("")]


def test_an_owner_that_is_being_prepared_is_waited_for() -> None:
    own = plan("b", "", "x", is_ready=True)
    assert list(awaited_owners(own, [plan("a", "xy", None)])) == [
        "package 'a', which has reactor 'x' and is being prepared"
    ]


def test_an_owner_whose_plan_is_known_is_not_waited_for() -> None:
    """It gives the name up, or it keeps it, and then the load is rejected."""
    own = plan("b", "", "x", is_ready=True)
    assert list(awaited_owners(own, [plan("a", "x", ""), plan("c", "x", "x"), plan("d", "y", None)])) == []


def test_a_package_that_is_ready_to_take_over_a_name_is_waited_for() -> None:
    own = plan("a", "xy", "y")
    assert list(awaited_takers(own, [plan("b", "", "x", is_ready=True)])) == [
        "package 'b', which takes over reactor 'x'"
    ]


def test_a_package_that_cannot_take_over_a_name_now_is_not_waited_for() -> None:
    """It lacks something itself, it has failed, or it takes something else."""
    assert list(awaited_takers(plan("a", "xy", "y"), [plan("b", "", "x"), plan("c", "", "z", is_ready=True)])) == []


def test_a_package_that_may_take_over_a_name_is_waited_for() -> None:
    assert list(awaited_takers(plan("a", "x", ""), [plan("b", "", None)])) == [
        "package 'b', which is being prepared and may take over reactor 'x'"
    ]


def test_a_package_that_gives_up_nothing_waits_for_no_taker() -> None:
    assert list(awaited_takers(plan("a", "x", "xy"), [plan("b", "", None), plan("c", "", "x", is_ready=True)])) == []
