"""A keyed reactor with n keys behaves like n reactors without keys, whatever the interleaving."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.service.keys.market import KEYS, Market, Tick

keys = st.sampled_from(KEYS)
accumulators = st.sampled_from(["prices", "totals", "fills"])
values = st.sampled_from([-1, 1, 2, 3, 13])
pushes = st.tuples(st.just("push"), accumulators, keys, values)
# One event per key and one accumulator: nothing orders concurrent pushes of one key otherwise.
together = st.tuples(st.just("together"), accumulators, st.dictionaries(keys, values, min_size=2))
steps = st.one_of(
    pushes,
    pushes,
    together,
    st.tuples(st.sampled_from(["pause", "resume", "second", "settle"])),
    st.tuples(st.sampled_from(["force", "fire_with"]), keys),
)
declarations = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["latest", "sequential"]),
        "when": st.sampled_from(["any", "all", "some", "both"]),
        "is_async": st.booleans(),
        "needs_context": st.booleans(),
        "has_slow_totals": st.booleans(),
        "on_error": st.sampled_from(["dead_letter", tm.Retry(1, delay="3s", jitter=0.0)]),
    }
)

SIMPLE = {"strategy": "latest", "when": "any", "on_error": "dead_letter"}
FEW = settings(
    max_examples=max(1, settings().max_examples // 6),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a script is short as it is: shrinking it takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)


class Side:
    """One node: the keyed reactor, or the reactor of one key."""

    def __init__(self, node: tm.testing.TestNode, keys: tuple[str, ...], *, keyed: bool, stored: bool) -> None:
        self.node = node
        self.keys = keys
        self.keyed = keyed
        self.stored = stored

    async def run(self, step: tuple[Any, ...]) -> Any:
        """Run a step, and with a store all that follows from it.

        A batch is flushed once the firing before it is written. How long a write takes decides whether the next event
        is in that batch or in the one after it, with keys and without: the next step waits until it is decided.
        """
        result = await self._run(step)
        if self.stored:
            await self.node.advance(0)
        return result

    async def _run(self, step: tuple[Any, ...]) -> Any:
        reactor = self.node.reactor("market")
        match step:
            case ("push", accumulator, key, value):
                receipt = await self.node.push(accumulator, Tick(key, value))
                return receipt.outcome
            case ("together", accumulator, values):
                mine = [("push", accumulator, key, value) for key, value in values.items() if key in self.keys]
                await asyncio.gather(*(self._run(one) for one in mine))
                await self.node.settle()
            case ("pause",):
                await reactor.pause()
            case ("resume",):
                await reactor.resume()
            case ("second",):
                await self.node.advance("1s")
            case ("settle",):
                await self.node.settle()
            case ("force" | "fire_with" as command, key):
                return await self._fire(command, key)
            case ("crash",):
                await self.node.settle()
                self.node = await self.node.crash()
        return None

    async def _fire(self, command: str, key: str) -> Any:
        reactor, named = self.node.reactor("market"), {"key": key} if self.keyed else {}
        try:
            inputs = {"prices": Tick(key, 5), "totals": {"value": 7}}
            fired = reactor.fire_with(inputs, **named) if command == "fire_with" else reactor.force_fire(**named)
            return _plain(await fired)
        except tm.RequestError as error:
            return error.code

    def firings(self, key: str) -> list[Any]:
        named = {"key": key} if self.keyed else {}
        return [_plain(one) for one in self.node.reactor("market").firings(200, **named)][::-1]

    async def state(self, key: str) -> Any:
        reactor = self.node.reactor("market")
        try:
            state = await reactor.state_of(key) if self.keyed else reactor.state()
        except tm.RequestError:
            return {"seen": []}, {}, 0
        return state.cache, {name: is_dirty for name, is_dirty in state.dirty.items() if is_dirty}, state.queued

    async def dead_letters(self, key: str) -> list[Any]:
        letters = await self.node.reactor("market").dead_letters()
        return [(one.kind, one.inputs, one.error) for one in letters if not self.keyed or one.key == key]


def _plain(firing: tm.Firing) -> Any:
    inputs = {name: value for name, value in firing.inputs.items() if name != "seen" or value}
    return inputs, {name: (one.outputs, one.ok) for name, one in firing.results.items()}, firing.manual, firing.attempt


async def compare(options: dict[str, Any], script: list[tuple[Any, ...]], store: str | None = None) -> None:
    """Run the same steps with keys and without, and compare what each key has seen."""
    few, stored = {"active_keys": 1}, store is not None
    async with tm.testing.node(load=Market(keyed=True, **options).load, store=store, settings=few) as keyed_node:
        keyed = Side(keyed_node, KEYS, keyed=True, stored=stored)
        nodes = {key: tm.testing.node(load=Market(keyed=False, **options).load, store=store) for key in KEYS}
        try:
            single = {
                key: Side(await node.__aenter__(), (key,), keyed=False, stored=stored) for key, node in nodes.items()
            }
            for step in (*script, ("resume",), ("second",), ("second",), ("second",), ("second",), ("settle",)):
                concerned = [one for one in KEYS if one in step] or KEYS
                expected = [await single[key].run(step) for key in concerned]
                assert await keyed.run(step) == expected[0], step
            for key in KEYS:
                assert keyed.firings(key) == single[key].firings(key), key
                assert await keyed.state(key) == await single[key].state(key), key
                assert await keyed.dead_letters(key) == await single[key].dead_letters(key), key
        finally:
            for node in nodes.values():
                await node.__aexit__(None, None, None)


@FEW
@given(declarations, st.lists(steps, max_size=14))
def test_each_key_sees_what_a_reactor_of_its_own_would_see(options: dict[str, Any], script: list[Any]) -> None:
    """G-1, G-2, G-3, G-5, G-8, G-10, G-11, G-13, G-15 hold for each key."""
    asyncio.run(compare(options, script))


@FEW
@given(
    declarations,
    st.sampled_from(["interval", "fire", "boundary"]),
    st.lists(st.one_of(steps, steps, st.just(("crash",))), max_size=14),
)
@example(SIMPLE, "fire", [("fire_with", "a"), ("push", "fills", "a", 2), ("force", "a")])
@example(
    SIMPLE | {"has_slow_totals": True},
    "boundary",
    [("push", "fills", "c", 2), ("crash",), ("fire_with", "c"), ("push", "totals", "c", 1), ("force", "c")],
)
def test_keys_outlive_their_memory_and_their_process(
    options: dict[str, Any], durability: str, script: list[Any]
) -> None:
    """G-23, G-24: with room for one key in memory, and crashes, each key still sees what its own reactor would see."""
    asyncio.run(compare(options | {"durability": durability}, script, "memory://"))
