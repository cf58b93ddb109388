"""P-4, G-28: definitions that other packages need stay, and a rejected change leaves the package working."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tests.service.whole_package import START, Node, check_it_works, module, scoring, source, spread, traces, whole
from tidemill.packages.format.archive import build


def user(kind: str, seen: list[Any]) -> Any:
    """Return a definition of another package that needs a reactor, a trigger, or a graph without a reactor."""
    if kind == "reactor":
        return spread("market", 1, seen, "bar")
    flow = tm.Workflow("bar", triggers=["new_files"] if kind == "trigger" else [])

    @flow.task
    def work() -> int:
        return 5

    if kind == "graph":
        flow.call("scoring", name="scored")
    return flow


NAMES = {"reactor": "market", "trigger": "new_files", "graph": "scoring"}


async def refused(node: Node, act: Any, kind: str) -> None:
    """See that something is refused as G-28 says it, and that nothing has changed."""
    before = await traces(node)
    with pytest.raises(tm.RequestError) as caught:
        await act
    said = f"{kind} '{NAMES[kind]}' has 1 bound subscriber(s): ['bar']; unbind them first"
    assert str(caught.value).splitlines()[0] == said
    assert (caught.value.code, caught.value.status) == (f"{kind}_in_use", 409)
    assert caught.value.facts["subscribers"] == ["bar"]
    assert await traces(node) == before


@pytest.mark.parametrize("kind", ["reactor", "trigger", "graph"])
async def test_a_needed_definition_cannot_be_unloaded(store: str, kind: str) -> None:
    """P-4, P-1: refused before anything has changed, with the subscribers; gone once these are."""
    package, seen = whole(), []
    async with tm.testing.node(store, load=[package.module], start=START) as node:
        name = await node.load(user(kind, seen))
        await refused(node, node.unload("whole"), kind)
        await check_it_works(node, package, 1)
        if kind == "reactor":
            assert seen[-1] == (1, None, 7)
        if kind == "graph":
            run = await node.start("bar")
            await node.settle()
            assert (await run.state()).outputs["scored"] == {"score": 501}
        await node.unload(name)
        await node.unload("whole")
        assert node.registry.packages() == []


@pytest.mark.parametrize("kind", ["reactor", "trigger", "graph"])
async def test_a_newer_version_without_a_needed_definition_is_rejected(store: str, kind: str) -> None:
    """P-4: never cascades, and the older version stays."""
    package = whole()
    lacks = [one for one in vars(whole(2).module).values() if getattr(one, "name", None) not in (NAMES[kind], "spread")]
    fits = [one for one in lacks if not isinstance(one, tm.Workflow) and getattr(one, "name", None) is not None]
    async with tm.testing.node(store, load=[package.module, user(kind, [])], start=START) as node:
        await refused(node, node.load(module("whole", *fits)), kind)
        await check_it_works(node, package, 1)


async def test_a_reactor_with_another_contract_is_refused_while_others_are_bound(store: str) -> None:
    """P-4: the cache of the older version is kept, and pushes fire."""
    package, seen = whole(), []
    async with tm.testing.node(store, load=[package.module, user("reactor", seen)], start=START) as node:
        await node.push("a", 1)
        await refused(node, node.load(whole(2, sources=("a", "b", "c")).module), "reactor")
        await node.push("b", 2)
        await node.settle()
        assert (package.seen[-1], seen[-1]) == ((1, 1, 2), (1, 1, 2))
        await node.unload("graph:bar")
        newer = whole(2, sources=("a", "b", "c"))
        await node.load(newer.module)
        await check_it_works(node, newer, 2)


async def test_a_newer_graph_that_fits_is_what_others_call_from_then_on(store: str) -> None:
    """P-4, P-6: workflows of other packages that call it by name."""
    async with tm.testing.node(store, load=[whole(1).module, user("graph", [])], start=START) as node:
        for version in (1, 2):
            await node.load(whole(version).module)
            run = await node.start("bar")
            await node.settle()
            assert (await run.state()).outputs["scored"] == {"score": 500 + version}


async def test_a_newer_graph_that_does_not_fit_others_is_refused(store: str) -> None:
    """P-4: said with what does not fit, and nothing has changed."""
    other = tm.Graph("scoring")

    @other.node
    def score(work: str, more: int) -> int:
        return more

    async with tm.testing.node(store, load=[module("m", scoring("scoring", 1)), user("graph", [])]) as node:
        before = await traces(node)
        with pytest.raises(tm.RequestError, match=r"graph 'scoring' has 1 bound subscriber\(s\): \['bar'\]") as caught:
            await node.load(module("m", other))
        assert "the new version does not fit workflow 'bar'" in str(caught.value)
        assert (caught.value.code, caught.value.status) == ("graph_in_use", 409)
        assert await traces(node) == before


@pytest.mark.parametrize(
    ("newer", "said"),
    [
        (lambda a, b: tm.Reactor("foo", [a, b], strategy="sequential"), "strategy='sequential', not strategy='latest'"),
        (lambda a, b: tm.Reactor("foo", [a, b], when="all"), "when='all', not when='any'"),
        (lambda a, b: tm.Reactor("foo", [a, b], when=tm.any_of(b)), "when=any_of(b), not when='any'"),
        (
            lambda a, b: tm.Reactor("foo", [a, b, source("c")]),
            "the accumulators a (passthrough), b (passthrough), c (passthrough), "
            "not the accumulators a (passthrough), b (passthrough)",
        ),
        (lambda a, b: tm.Reactor("bar", [a, b]), "no reactor 'foo'"),
    ],
)
async def test_a_refused_reload_says_what_is_different(newer: Callable[..., tm.Reactor], said: str) -> None:
    """P-4: with the text of G-28, and the old version stays."""
    a, b = source("a"), source("b")
    old = tm.Reactor("foo", [a, b])
    async with tm.testing.node(load=[module("m", old), spread("foo", 1, [], "one")]) as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.load(module("m", newer(a, b)))
        assert str(caught.value).splitlines() == [
            "reactor 'foo' has 1 bound subscriber(s): ['one']; unbind them first",
            f"the new version has {said}",
            "unload the packages of the subscribers before this one is loaded, or leave that as it was",
        ]
        assert node.registry.reactors() == ["foo"]


async def test_all_bound_graphs_are_named() -> None:
    """G-28: sorted, of every package."""
    reactor = tm.Reactor("foo", [source("a"), source("b")])
    graphs = [spread("foo", 1, [], name) for name in ("one", "two")]
    async with tm.testing.node(load=[reactor, *graphs]) as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.unload("reactor:foo")
        assert str(caught.value) == "reactor 'foo' has 2 bound subscriber(s): ['one', 'two']; unbind them first"


async def test_a_state_that_ends_the_program_is_refused() -> None:
    """P-7, G-7: whatever the class of a state does when it begins is that package's error, and ends nothing else."""

    class Total(tm.Boundary):
        value: int = 0

        def __post_init__(self) -> None:
            raise SystemExit(3)

    @tm.passthrough(state=Total)
    def totals(event: int, state: Total) -> Total:
        return state

    async with tm.testing.node(start=START) as node:
        with pytest.raises(tm.DefinitionError, match=r"state= of accumulator 'totals' begins as .*SystemExit: 3"):
            await node.load(tm.Reactor("till", [totals]))
        assert node.registry.reactors() == []


@pytest.mark.parametrize("is_archive", [False, True])
async def test_a_pool_that_the_manifest_names_is_reported_where_it_is_named(
    tmp_path: Path, is_archive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-10: the code knows nothing of it; of one that the code names, the code is the place."""
    without_child_processes(monkeypatch)
    code = (
        "import tidemill as tm\n\nflow = tm.Workflow('flow')\n\n\n@flow.task{pool}\ndef one() -> int:\n    return 1\n"
    )
    folder = package(
        tmp_path / "shop", code.format(pool=""), manifest='[tasks."flow.one"]\nretries = 1\npool = "nope"\n'
    )
    build(folder, tmp_path / "shop.tidemill")
    async with tm.testing.node() as node:
        with pytest.raises(tm.DefinitionError) as caught:
            await node.load(tmp_path / "shop.tidemill" if is_archive else folder)
        (problem,) = caught.value.problems
        assert problem.message.startswith("[tasks.\"flow.one\"] in package.toml: task 'one': there is no pool 'nope'")
        assert str(problem.location) == ("None" if is_archive else f"{folder / 'package.toml'}:4")
        package(folder, code.format(pool="(pool='nope')"), manifest='[tasks."flow.one"]\nretries = 1\n')
        with pytest.raises(tm.DefinitionError) as caught:
            await node.load(folder)
        (problem,) = caught.value.problems
        assert problem.message.startswith("task 'one': there is no pool 'nope'")
        assert str(problem.location).startswith(str(folder / "shop" / "__init__.py"))


async def test_unload_takes_a_name() -> None:
    """As what is no package cannot be loaded."""
    async with tm.testing.node() as node:
        with pytest.raises(tm.RequestError, match="name the package to unload, as `load` returned it, not None"):
            await node.unload(None)
