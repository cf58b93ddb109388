"""Partitions: names, and the assignment to hosts."""

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.graphs.keys import PartitionId
from tidemill.graphs.partitions import assign_partitions

HOSTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 4), min_size=1)
OWNERS = st.lists(st.none() | st.sampled_from("abcdefgh"), min_size=1, max_size=40).map(
    lambda one: dict(enumerate(one))
)


def test_the_name_of_a_partition_is_read_back() -> None:
    name = PartitionId("market [eu]", 3)

    assert str(name) == "market [eu][3]"
    assert PartitionId.parse(str(name)) == name


@pytest.mark.parametrize("text", ["market", "market[]", "[3]", "market[3", "market[x]", "market[3] "])
def test_other_names_are_no_partitions(text: str) -> None:
    assert PartitionId.parse(text) is None


def test_without_hosts_nothing_is_assigned() -> None:
    assert assign_partitions({0: "a", 1: None}, {}) == {}


def test_a_host_that_joins_takes_its_share_and_no_more() -> None:
    before = assign_partitions(dict.fromkeys(range(16)), {"a": 1, "b": 1})

    after = assign_partitions(before, {"a": 1, "b": 1, "c": 1})

    moved = {number: host for number, host in after.items() if before[number] != host}
    assert set(moved.values()) == {"c"}
    assert len(moved) == 5


def test_a_host_that_leaves_gives_its_share_to_the_others() -> None:
    before = assign_partitions(dict.fromkeys(range(16)), {"a": 1, "b": 1, "c": 2})

    after = assign_partitions(before, {"a": 1, "b": 1})

    assert all(after[number] == host for number, host in before.items() if host != "c")
    assert sorted(list(after.values()).count(host) for host in "ab") == [8, 8]


@given(OWNERS, HOSTS)
def test_every_partition_gets_a_host_and_shares_are_even(owners: dict[int, str | None], hosts: dict[str, int]) -> None:
    assigned = assign_partitions(owners, hosts)

    assert assigned.keys() == owners.keys()
    total = sum(hosts.values())
    for host, weight in hosts.items():
        share = list(assigned.values()).count(host)
        assert abs(share * total - len(owners) * weight) < total, "further than one partition from its exact share"


@given(OWNERS, HOSTS, st.randoms(use_true_random=False))
def test_equal_arguments_give_equal_assignments(
    owners: dict[int, str | None], hosts: dict[str, int], random: Random
) -> None:
    shuffled_owners, shuffled_hosts = list(owners.items()), list(hosts.items())
    random.shuffle(shuffled_owners)
    random.shuffle(shuffled_hosts)

    assert assign_partitions(dict(shuffled_owners), dict(shuffled_hosts)) == assign_partitions(owners, hosts)


@given(OWNERS, HOSTS)
def test_an_assignment_that_was_carried_out_is_final(owners: dict[int, str | None], hosts: dict[str, int]) -> None:
    assigned = assign_partitions(owners, hosts)

    assert assign_partitions(assigned, hosts) == assigned


@given(
    st.lists(st.none() | st.sampled_from("abc"), min_size=1, max_size=6).map(lambda one: dict(enumerate(one))),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), min_size=1),
)
def test_no_even_assignment_moves_less(owners: dict[int, str | None], hosts: dict[str, int]) -> None:
    """Compare with every even assignment there is."""
    total, count = sum(hosts.values()), len(owners)

    def is_even(assigned: tuple[str, ...]) -> bool:
        return all(abs(assigned.count(host) * total - count * weight) < total for host, weight in hosts.items())

    def moves(assigned: tuple[str, ...]) -> int:
        return sum(owners[number] != host for number, host in enumerate(assigned))

    chosen = assign_partitions(owners, hosts)
    best = min(moves(one) for one in product(hosts, repeat=count) if is_even(one))
    assert moves(tuple(chosen[number] for number in range(count))) == best
