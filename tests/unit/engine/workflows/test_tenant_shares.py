"""The shares of tenants in slots: whose task is next, whatever they start and however long it takes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.workflows.builders import VERSION
from tidemill.engine.workflows.tenant_shares import FairQueue, ask_first, moves_to

TENANTS = ("acme", "beta", "public")
tenants = st.sampled_from(TENANTS)
weights = st.dictionaries(tenants, st.integers(1, 5))
steps = st.lists(st.one_of(st.tuples(tenants, st.integers(0, 9)), st.sampled_from(TENANTS), st.none()), max_size=60)
"""A task that arrives with its rank, a tenant of whom one ends, or None for a slot that is granted."""

Item = tuple[int, int, str]
"""The rank of a task, its number, and its tenant."""


@given(weights=weights, steps=steps, slots=st.integers(1, 4))
def test_the_smallest_share_is_next_and_the_order_of_a_tenant_is_its_own(
    weights: dict[str, int], steps: list[tuple[str, int] | str | None], slots: int
) -> None:
    """W-6: for any arrivals, ends and grants."""
    queue: FairQueue[Item] = FairQueue(weights)
    used: Counter[str] = Counter()
    waiting: dict[str, list[Item]] = {tenant: [] for tenant in TENANTS}
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            tenant, rank = step
            waiting[tenant].append((rank, number, tenant))
            queue.push(tenant, waiting[tenant][-1])
        elif step is not None:
            used[step] = max(0, used[step] - 1)
        elif queue.heaps and used.total() < slots:
            item = queue.first(used)
            shares = {one: used[one] / weights.get(one, 1) for one, items in waiting.items() if items}
            assert item == min(waiting[item[-1]])
            assert shares[item[-1]] == pytest.approx(min(shares.values()))
            assert queue.pop(item[-1]) == item
            waiting[item[-1]].remove(item)
            used[item[-1]] += 1
        assert len(queue) == sum(map(len, waiting.values()))
        assert sorted(queue.heads()) == sorted(min(items) for items in waiting.values() if items)


@given(weights=weights, rounds=st.integers(1, 5))
def test_tenants_take_turns_at_a_single_slot(weights: dict[str, int], rounds: int) -> None:
    """W-6: as many turns as their weights, although none of them uses a slot when it is free."""
    queue: FairQueue[Item] = FairQueue(weights)
    for tenant in TENANTS:
        for number in range(100):
            queue.push(tenant, (number, 0, tenant))
    turns = rounds * sum(weights.get(tenant, 1) for tenant in TENANTS)
    served = Counter(queue.pop(queue.first({})[-1])[-1] for _ in range(turns))
    for tenant in TENANTS:
        assert abs(served[tenant] - rounds * weights.get(tenant, 1)) <= 1


@given(arrivals=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), unique=True))
def test_a_tenant_alone_has_the_order_of_its_tasks(arrivals: list[tuple[int, int]]) -> None:
    """W-6: priority, then older runs."""
    queue: FairQueue[Item] = FairQueue({})
    for rank, number in arrivals:
        queue.push("acme", (rank, number, "acme"))
    served = [queue.pop("acme")[:2] for _ in arrivals if queue.first({})]
    assert served == sorted(arrivals)
    assert not queue.heaps


def test_a_tenant_that_comes_and_goes_does_not_get_every_turn() -> None:
    """W-6: one task after another at a single slot, each older than those of the other tenant."""
    queue: FairQueue[Item] = FairQueue({})
    for number in range(10):
        queue.push("acme", (5, number, "acme"))
    served = []
    for number in range(6):
        if not any(head[-1] == "public" for head in queue.heads()):
            queue.push("public", (0, number, "public"))
        served.append(queue.pop(queue.first({})[-1])[-1])
    assert Counter(served) == {"acme": 3, "public": 3}


@pytest.mark.parametrize(
    ("other", "own", "has_waited", "moves"),
    [
        (0, 8, False, True),
        (6, 8, False, True),
        (7, 8, False, False),  # it would move back with the next task
        (7, 8, True, True),
        (8, 8, True, False),
        (0, 1, False, False),
        (0, 1, True, True),  # a single slot
    ],
)
def test_a_freed_slot_moves_to_a_tenant_that_has_less(other: int, own: int, has_waited: bool, moves: bool) -> None:
    """W-6: it is kept for its run if the shares are as equal as they can be."""
    assert moves_to(other, 1, own, 1, has_waited=has_waited) is moves


def test_claims_ask_the_tenants_with_the_largest_share_last() -> None:
    """W-6: by weight; no tenant is asked first if all use the same, or nothing is used."""
    acme, beta, public = loaded = [VERSION._replace(tenant=tenant) for tenant in TENANTS]
    assert ask_first(loaded, {"acme": 4, "beta": 1}, {}) == [beta, public]
    assert ask_first(loaded, {"acme": 4, "beta": 3}, {"acme": 2}) == [acme, public]
    assert ask_first(loaded, {"acme": 2, "beta": 2, "public": 2}, {}) == []
    assert ask_first(loaded, {}, {}) == []
