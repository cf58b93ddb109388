"""When a reactor fires: any or all, of all or of some, and only with what its graphs require."""

import pytest

import tidemill as tm
from tests.service.samples import pair, single


def required_and_optional() -> tuple[tm.Reactor, list[tuple[int, int | None]], tm.Graph]:
    """Return a reactor of `a` and `b` whose graph requires `a` alone."""
    sample = pair()
    graph = tm.Graph("needy", reactor=sample.reactor)
    seen = []

    @graph.node
    def out(a: int, b: int | None) -> None:
        seen.append((a, b))

    return sample.reactor, seen, graph


async def test_any_fires_on_the_first_boundary_of_any_source() -> None:
    """Behaviour 26; behaviour 39: a silent source is None."""
    sample = pair(when="any")
    async with tm.testing.node(load=sample.load) as node:
        await node.push("b", 1)
        await node.push("a", 2)
    assert sample.seen == [(None, 1), (2, 1)]


async def test_all_waits_for_every_source_since_the_last_firing() -> None:
    """G-10, behaviours 27, 28 and 29: ten of a, then one of b, is one firing with a's newest."""
    sample = pair(when="all")
    async with tm.testing.node(load=sample.load) as node:
        for value in range(10):
            await node.push("a", value)
        assert sample.seen == []
        await node.push("b", 1)
        await node.push("a", 100)
        await node.push("a", 101)
    assert sample.seen == [(9, 1)]


async def test_flags_are_false_for_every_expected_source_at_first() -> None:
    """G-10, behaviour 30."""
    async with tm.testing.node(load=pair(when="all").load) as node:
        assert node.reactor("r").state().dirty == {"a": False, "b": False}


async def test_flags_say_what_is_news_and_a_firing_clears_them() -> None:
    """G-2, G-10."""
    async with tm.testing.node(load=pair(when="all").load) as node:
        await node.push("a", 1)
        before = node.reactor("r").state().dirty
        await node.push("b", 1)
        after = node.reactor("r").state().dirty
    assert before == {"a": True, "b": False}
    assert after == {"a": False, "b": False}


async def test_any_of_a_subset_ignores_the_others_but_keeps_them_in_the_cache() -> None:
    """Behaviour 32."""
    sample = pair()
    a, b = sample.reactor.accumulators
    reactor = tm.Reactor("s", [a, b], when=tm.any_of(a))
    async with tm.testing.node(load=[reactor]) as node:
        await node.push("b", 1)
        await node.push("b", 2)
        assert node.reactor("s").state().fires == 0
        await node.push("a", 3)
        firing = await node.reactor("s").next_firing()
    assert firing.inputs == {"a": 3, "b": 2}


async def test_all_of_a_subset_waits_only_for_those() -> None:
    """Behaviour 32."""
    a, b = pair().reactor.accumulators
    reactor = tm.Reactor("s", [a, b], when=tm.all_of(b))
    async with tm.testing.node(load=[reactor]) as node:
        await node.push("b", 1)
        await node.push("a", 1)
        await node.push("b", 2)
        assert node.reactor("s").state().fires == 2


async def test_bare_criteria_mean_all_accumulators() -> None:
    """Behaviour 33."""
    a, b = pair().reactor.accumulators
    reactor = tm.Reactor("s", [a, b], when=tm.all_of())
    async with tm.testing.node(load=[reactor]) as node:
        await node.push("a", 1)
        assert node.reactor("s").state().fires == 0
        await node.push("b", 1)
        assert node.reactor("s").state().fires == 1


def test_criteria_that_name_a_stranger_are_refused_when_declared() -> None:
    """Behaviour 31."""
    (stranger,) = single().reactor.accumulators
    with pytest.raises(tm.DefinitionError, match="when names 'a'"):
        tm.Reactor("s", pair().reactor.accumulators, when=tm.any_of(stranger))


async def test_a_missing_required_input_is_counted_and_clears_nothing() -> None:
    """API: nothing is cleared or logged and `incomplete` rises by one."""
    reactor, seen, graph = required_and_optional()
    async with tm.testing.node(load=[reactor, graph]) as node:
        await node.push("b", 1)
        state = node.reactor("r").state()
        assert (state.incomplete, state.fires, state.dirty) == (1, 0, {"a": False, "b": True})
        assert node.reactor("r").firings() == []
        await node.push("a", 2)
        assert node.reactor("r").state().dirty == {"a": False, "b": False}
    assert seen == [(2, 1)]


async def test_a_graph_that_was_not_called_is_absent_from_the_results() -> None:
    """G-8: only graphs that have all they need are called."""
    sample = pair()
    needy = tm.Graph("needy", reactor=sample.reactor)

    @needy.node
    def out(a: int) -> int:
        return a

    async with tm.testing.node(load=[*sample.load, needy]) as node:
        await node.push("b", 1)
        await node.push("a", 1)
        second, first = node.reactor("r").firings()
        assert node.reactor("r").state().incomplete == 0
    assert set(first.results) == {"g"}
    assert set(second.results) == {"g", "needy"}


async def test_a_reactor_without_graphs_fires_and_counts() -> None:
    """Behaviour 47."""
    async with tm.testing.node(load=[single().reactor]) as node:
        await node.push("a", 1)
        (firing,) = node.reactor("r").firings()
        assert node.reactor("r").state().fires == 1
    assert (firing.inputs, firing.results, firing.ok) == ({"a": 1}, {}, True)
