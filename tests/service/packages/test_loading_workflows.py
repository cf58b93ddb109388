"""Loading workflows and triggers: checked first, changed afterwards, and put back if a step fails."""

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tests.service.samples import single
from tests.service.workflows.acting import start_and_pause
from tidemill.packages.loading.reader import read_package, sort_for_loading
from tidemill.packages.service import PackageService
from tidemill.storage.tables.versions import CodeArchive
from tidemill.workflows.workflow import Workflow


class Engine:
    """Stands in for what runs workflows: remembers its calls, and refuses those that a test names."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, str], Workflow] = {}
        self.versions = SimpleNamespace(listen=lambda listener: None)
        self.checked: list[str] = []
        self.refuses: set[str] = set()
        self.fails: set[str] = set()

    async def read_new_pools(self, workflows: Any) -> None:
        """There are none here."""

    def check(self, workflow: Workflow) -> None:
        self.checked.append(workflow.name)
        if workflow.name in self.refuses:
            raise tm.DefinitionError([tm.Problem(message="there is no pool 'x'")], f"workflow '{workflow.name}'")

    async def activate(self, tenant: str, workflow: Workflow, archive: CodeArchive) -> None:
        if workflow.name in self.fails:
            raise tm.OperationError("the store is down")
        self.running[tenant, workflow.name] = workflow

    async def deactivate(self, tenant: str, name: str) -> None:
        self.running.pop((tenant, name), None)

    async def collect_versions(self) -> None:
        """There are none to discard."""

    def loaded_workflows(self, tenant: str) -> list[Workflow]:
        return [one for (owner, _), one in self.running.items() if owner == tenant]

    def in_use_check(self, tenant: str, workflow: Workflow) -> Any:
        return lambda: self.running.get((tenant, workflow.name)) is workflow

    def hold_schedules(self, tenant: str, workflows: Any) -> None:
        """There are none here."""

    def release_schedules(self, tenant: str, workflows: Any) -> None:
        """There are none here."""

    def names(self, tenant: str = "public") -> list[str]:
        return sorted(name for owner, name in self.running if owner == tenant)


def node_with(engine: Engine, *load: Any) -> tm.Node:
    """Return a node whose workflows are run by the engine."""
    node: tm.Node = tm.testing.node(load=load)
    engine.owner = node._workflows.owner  # type: ignore[attr-defined]
    parts = node._run_store, node._graph_runtime, node.registry, node._scheduler
    profile = node._parts.foundation.profile
    node._packages = PackageService(*parts, engine, profile.liveness, node._parts.standby)
    return node


def flow(name: str, **options: Any) -> tm.Workflow:
    made = tm.Workflow(name, **options)

    @made.task
    def work() -> int:
        return 1

    return made


def trigger(name: str = "new_files") -> tm.Trigger:
    def ask() -> tm.Fire | None:
        return None

    ask.__name__ = name
    return tm.trigger(every="10s")(ask)


def module(name: str, *definitions: Any) -> ModuleType:
    made = ModuleType(name)
    for number, definition in enumerate(definitions):
        setattr(made, f"definition_{number}", definition)
    return made


def listed(node: tm.Node) -> tuple[list[str], list[str], list[str]]:
    return node.registry.workflows(), node.registry.triggers(), node.registry.packages()


async def test_bare_definitions_are_packages_of_their_own() -> None:
    """api.md, `node.load`: named after what they are; a workflow brings the triggers that it was given."""
    engine, asked = Engine(), trigger()
    async with node_with(engine) as node:
        assert await node.load(flow("daily")) == "workflow:daily"
        ingest = flow("ingest", triggers=[asked])
        assert await node.load(ingest) == "workflow:ingest"
        assert await node.load(trigger("other")) == "trigger:other"
        assert listed(node) == (
            ["daily", "ingest"],
            ["new_files", "other"],
            ["trigger:other", "workflow:daily", "workflow:ingest"],
        )
        assert node.registry.workflows.find("public", "ingest") is ingest
        assert node.registry.triggers.find("public", "new_files") is asked
        assert engine.names() == ["daily", "ingest"]
        for package in ("workflow:ingest", "workflow:daily", "trigger:other"):
            await node.unload(package)
        assert listed(node) == ([], [], [])
        assert engine.names() == []
        assert node.registry.workflows.find("public", "ingest") is None


async def test_a_module_brings_everything_it_holds() -> None:
    """api.md: reactors, graphs, workflows and triggers as one."""
    sample, engine = single(), Engine()
    asked = trigger()
    package = module("m", *sample.load, flow("a", triggers=["new_files", tm.on_firing("r")]), asked)
    async with node_with(engine, package) as node:
        assert listed(node) == (["a"], ["new_files"], ["m"])
        assert node.registry.graphs() == ["g"]
        await node.push("a", 1)
        await node.unload("m")
        assert listed(node) == ([], [], [])
        assert node.registry.graphs() == []
    assert sample.seen == [1]


async def test_the_same_package_again_is_swapped() -> None:
    """api.md: what it no longer holds is withdrawn."""
    engine = Engine()
    async with node_with(engine) as node:
        await node.load(module("m", flow("a"), flow("b"), trigger()))
        newer = flow("a")
        await node.load(module("m", newer, flow("c")))
        assert listed(node) == (["a", "c"], [], ["m"])
        assert engine.running["public", "a"] is newer
        assert engine.names() == ["a", "c"]


async def test_what_was_only_imported_is_not_a_packages_own() -> None:
    """As for reactors: unloading the importer leaves it alone."""
    engine, asked = Engine(), trigger()
    daily = flow("daily", triggers=[asked])
    async with node_with(engine) as node:
        await node.load(module("first", daily))
        await node.load(module("second", daily, asked, flow("more")))
        await node.unload("second")
        assert listed(node) == (["daily"], ["new_files"], ["first"])
        assert engine.names() == ["daily"]


async def test_names_are_unique_in_a_tenant() -> None:
    """api.md: as for graphs; two in one module are a definition error."""
    engine = Engine()
    async with node_with(engine) as node:
        await node.load(module("first", flow("daily"), trigger()))
        for taken in (flow("daily"), trigger()):
            with pytest.raises(tm.RequestError, match="is already defined at") as caught:
                await node.load(module("second", taken))
            assert (caught.value.code, caught.value.status) == ("name_taken", 409)
        assert await node.load(module("second", flow("daily"), trigger()), tenant="acme") == "second"
        assert engine.names("acme") == ["daily"]
        assert node.registry.workflows("acme") == ["daily"]
        with pytest.raises(tm.DefinitionError, match="two workflows are named 'twin'"):
            await node.load(module("third", flow("twin"), flow("twin")))
        with pytest.raises(tm.DefinitionError, match="two triggers are named 'new_files'"):
            await node.load(module("third", trigger(), trigger()))
        assert node.registry.packages() == ["first"]


async def test_everything_is_checked_before_anything_changes() -> None:
    """api.md: unknown trigger, pool, reactor; a workflow that cannot be wired."""
    engine = Engine()
    engine.refuses = {"refused"}
    broken = tm.Workflow("broken")

    @broken.task
    def work(absent: int) -> None: ...

    cases: list[tuple[Any, type[Exception], str]] = [
        (broken, tm.DefinitionError, "names no task"),
        (flow("refused"), tm.DefinitionError, "no pool 'x'"),
        (flow("late", triggers=["new_fils"]), tm.DefinitionError, r"no trigger 'new_fils' \(did you mean 'new_files'"),
    ]
    async with node_with(engine) as node:
        await node.load(trigger())
        for thing, kind, said in cases:
            with pytest.raises(kind, match=said):
                await node.load(module("m", *single().load, flow("good"), thing))
            assert listed(node) == ([], ["new_files"], ["trigger:new_files"])
            assert node.registry.reactors() == []
            assert engine.names() == []
        await node.load(flow("late", triggers=["new_files"]))


async def test_a_load_that_fails_half_way_is_undone() -> None:
    """api.md: nothing has changed, also of the older version."""
    engine = Engine()
    old, gone = flow("old"), flow("gone")
    async with node_with(engine) as node:
        first = trigger()
        await node.load(module("m", old, gone, first))
        engine.fails = {"worse"}
        with pytest.raises(tm.OperationError, match="the store is down"):
            await node.load(module("m", flow("old"), flow("new"), trigger(), trigger("more"), flow("worse")))
        assert listed(node) == (["gone", "old"], ["new_files"], ["m"])
        assert node.registry.triggers.find("public", "new_files") is first
        assert engine.running == {("public", "old"): old, ("public", "gone"): gone}
        assert node.registry.workflows.find("public", "old") is old


async def test_a_load_whose_graphs_fail_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-2: the package is whole, or it is not there."""
    engine = Engine()
    async with node_with(engine) as node:

        async def fail(staged: Any) -> None:
            assert listed(node)[1] == ["new_files"]
            assert node.registry.reactors() == ["r"]
            raise tm.OperationError("no")

        monkeypatch.setattr(node.probe.graphs.scheduler, "rebind", fail)  # type: ignore[attr-defined]
        with pytest.raises(tm.OperationError, match="no"):
            await node.load(module("m", *single().load, flow("a"), trigger()))
        assert listed(node) == ([], [], [])
        assert node.registry.reactors() == node.registry.accumulators() == node.registry.endpoints() == []
        assert engine.names() == []
        monkeypatch.undo()


async def test_a_trigger_that_others_need_stays() -> None:
    """As for reactors (G-28): a conflict, and nothing has changed."""
    engine = Engine()
    async with node_with(engine, trigger(), flow("ingest", triggers=["new_files"])) as node:
        for act in (node.unload("trigger:new_files"), node.load(module("trigger:new_files", flow("x")))):
            with pytest.raises(tm.RequestError) as caught:
                await act
            assert (caught.value.code, caught.value.status) == ("trigger_in_use", 409)
        assert listed(node)[:2] == (["ingest"], ["new_files"])
        await node.unload("workflow:ingest")
        await node.unload("trigger:new_files")


async def test_a_reactor_whose_firings_start_workflows_may_come_and_go(caplog: pytest.LogCaptureFixture) -> None:
    """G-28: a subscription does not block unloading; a reactor that is not there may be misspelt, which is said."""
    engine, sample = Engine(), single()
    async with node_with(engine, flow("ingest", triggers=[tm.on_firing("r")])) as node:
        assert [record.reason for record in caplog.records if record.msg == "subscription.reactor_missing"] == [  # type: ignore[attr-defined]
            "reactor 'r' not loaded"
        ]
        await node.load(module("m", *sample.load))
        await node.unload("m")
        assert engine.names() == ["ingest"]


async def test_what_cannot_be_put_back_is_owed_and_does_not_hide_the_first_error() -> None:
    """P-2: a failing undo is recorded and tried again, until everything is as it was."""
    engine = Engine()
    async with node_with(engine) as node:
        old = flow("a")
        await node.load(module("m", old, flow("b")))
        put = engine.activate

        async def fail(tenant: str, workflow: Workflow, archive: CodeArchive) -> None:
            if workflow.name == "c":
                engine.fails = {"a"}
                raise tm.OperationError("the first")
            await put(tenant, workflow, archive)

        engine.activate = fail
        with pytest.raises(tm.OperationError, match="the first") as caught:
            await node.load(module("m", flow("a"), flow("c")))
        assert "the rollback failed too: the store is down" in caught.value.__notes__[0]
        assert engine.running["public", "a"] is not old
        with pytest.raises(tm.OperationError, match="still being rolled back"):
            await node.unload("m")
        engine.fails = set()
        await node.advance("1m")  # type: ignore[attr-defined]
        assert engine.running["public", "a"] is old
        assert listed(node) == (["a", "b"], [], ["m"])
        await node.unload("m")
        assert listed(node) == ([], [], [])


async def test_a_graph_that_is_called_by_name_is_found_among_what_is_loaded() -> None:
    """api.md, `daily.call("scoring")`: of the package itself, or loaded before."""
    scoring = tm.Graph("scoring")

    @scoring.node
    def score(work: int) -> int:
        return work + 1

    def caller() -> tm.Workflow:
        made = flow("daily")
        made.call("scoring", name="scored")
        return made

    engine, daily = Engine(), caller()
    async with node_with(engine, daily, scoring) as node:  # definitions come in any order
        placed = engine.running["public", "daily"]
        assert placed.wired().tasks["scored"].task.function.call(work=1) == {"score": 2}
        assert node.registry.workflows.find("public", "daily") is placed
        assert await node.load(module("again", daily)) == "again"  # the same one, merely imported
        await node.load(module("m", caller(), scoring), tenant="acme")
        with pytest.raises(tm.DefinitionError, match="calls graph 'scoring', which is not loaded"):
            await node.load(caller(), tenant="other")
    assert sort_for_loading([daily, scoring, daily])[0] is scoring


def test_what_is_no_definition_is_refused() -> None:
    """api.md."""
    with pytest.raises(tm.RequestError, match=r"a tm\.Workflow or a trigger") as caught:
        read_package(3)
    assert caught.value.code == "not_loadable"


async def test_two_of_one_name_are_not_loaded_at_once() -> None:
    """api.md, `tm.Node(load=)`: the second would silently take the place of the first; later that is a hot swap."""
    one, other = flow("daily"), flow("daily")
    with pytest.raises(tm.RequestError, match=r"workflow 'daily' is to be loaded twice, the other one is at .*rename"):
        async with tm.testing.node(load=[one, other]):
            pass
    async with tm.testing.node(load=[one, one]) as node:
        await node.load(other)
        assert node.registry.workflows.find("public", "daily").declaration is other


async def test_another_package_may_not_take_a_name() -> None:
    """api.md, `node.load`: a definition belongs to the package that brought it, bare or not."""
    async with tm.testing.node(load=[flow("daily"), module("m", flow("weekly"))]) as node:
        for taken in (module("n", flow("daily")), flow("weekly")):
            with pytest.raises(tm.RequestError, match="is already defined at") as caught:
                await node.load(taken)
            assert caught.value.code == "name_taken"


async def test_a_version_that_is_superseded_while_older_ones_are_forgotten_stays() -> None:
    """P-6, W-8: who needs it was not asked, so it is not forgotten; its run, which has not begun, takes the newest."""
    async with tm.testing.node(load=[numbered("x", 1), numbered("y", 1)]) as node:
        (run,) = await start_and_pause(node, "y")
        await node.load(numbered("x", 2))
        library, runs = node.probe.workflows.versions, node.probe.packages.store.runs
        needed, find = library.current.get(("public", "y")), runs.find

        async def reload_meanwhile(wanted: Any) -> Any:
            runs.find = find
            await node.probe.workflows.engine.activate("public", numbered("y", 2))
            return [one for one in await find(wanted) if one.workflow == "x"]

        library.current.pop(("public", "x"))  # else there is nothing to be forgotten
        runs.find = reload_meanwhile
        await node.probe.workflows.engine.collect_versions()
        assert runs.find == find
        assert library.current.get(("public", "y")) != needed
        assert library.find_workflow(needed) is not None
        await node.resume("y")
        await node.settle()
        assert (await run.state()).outputs == {"work": 2}


def numbered(name: str, number: int) -> tm.Workflow:
    """Return a version of a workflow."""
    made = tm.Workflow(name)

    @made.task(priority=number)
    def work() -> int:
        return number

    return made


HANDLED = """
import tidemill as tm

flow = tm.Workflow("handled")


@flow.task
def fail() -> None:
    raise ValueError("no")


@flow.on_failure{options}
def alert(report: tm.RunReport) -> str:
    raise ConnectionError("no network")
"""


async def test_handlers_come_and_go_with_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest sets their options, as those of tasks; a version without them calls none."""
    without_child_processes(monkeypatch)
    manifest = '[tasks."handled.on_failure.alert"]\nretries = 0\n'
    folder = package(tmp_path / "shop", HANDLED.format(options=""), manifest=manifest)
    async with tm.testing.node() as node:
        await node.load(folder)
        assert set(node.registry.workflows("public")) == {"handled", "handled.on_failure"}
        await node.start("handled")
        await node.settle()
        called, failed = [await run.state() for run in await node.runs()]
        assert [(run.workflow, str(run.state)) for run in (called, failed)] == [
            ("handled.on_failure", "failed"),
            ("handled", "failed"),
        ]
        assert called.tasks["alert"].attempts == 1
        package(tmp_path / "shop", HANDLED.partition("@flow.on_failure")[0], version="2.0.0")
        await node.load(folder)
        assert set(node.registry.workflows("public")) == {"handled"}
        await node.start("handled")
        await node.settle()
        assert len(await node.runs()) == 3


async def test_a_pool_of_a_handler_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)
    folder = package(tmp_path / "shop", HANDLED.format(options="(pool='nope')"))
    async with tm.testing.node() as node:
        with pytest.raises(tm.DefinitionError, match="task 'alert': there is no pool 'nope'"):
            await node.load(folder)
