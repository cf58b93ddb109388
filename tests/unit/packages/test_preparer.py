"""Preparing packages beside what runs: completely, or not at all (P-2, P-6, P-7, P-9, W-19)."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from tests.contract.executor_harness import ExecutorHarness, open_harness, until
from tests.unit.packages.package_samples import folder_of, listing
from tidemill.engine.workflows.executors.forkserver.client import SERVER_MODULE
from tidemill.kernel.clock import SystemClock, VirtualClock
from tidemill.kernel.errors import DefinitionError, OperationError, RequestError
from tidemill.kernel.settings import Settings
from tidemill.packages.format.archive import PackageContents, parse_archive, read_folder
from tidemill.packages.format.private_key import generate_key
from tidemill.packages.format.signature import TrustPolicy, sign
from tidemill.packages.format.zip_format import build_zip
from tidemill.packages.loading.copies import FOLDER_PREFIX, LOCK_FILE, PackageCopies, remove_stale_folders
from tidemill.packages.loading.preparer import PackagePreparer, PreparedPackage
from tidemill.packages.loading.probe import ProbeError, ProbeLimits, probe_limits
from tidemill.workflows.attempt_results import Failed
from tidemill.workflows.workflow import Workflow

MANIFEST = """\
[package]
name = "shop"
version = "1.2.0"
modules = ["shop", "shop.flows"]

[reactors.till]
shared = true
"""
SETTINGS = """
[tasks."daily.count"]
retries = 5
timeout = "10m"
queue = "big"
executor = "subprocess"
"""
SHOP = """\
import tidemill as tm
from shop.model import Order

@tm.passthrough
def orders(event: Order) -> Order:
    return event

till = tm.Reactor("till", [orders])
totals = tm.Graph("totals")

@totals.node
def total(count: int) -> int:
    return count * 2
"""
FLOWS = """\
from pathlib import Path
import tidemill as tm
from shop.model import Order

daily = tm.Workflow("daily")

@daily.task(retry=tm.Retry(1, delay="7s", on=(KeyError,)))
def count() -> int:
    from shop import late
    return late.number() + len((Path(__file__).parent / "data" / "prices.csv").read_text())

daily.call("totals")

@daily.task
def fail() -> list[Order] | int:
    raise LookupError(Order.__module__)
"""
FILES = {
    "package.toml": MANIFEST,
    "shop/__init__.py": SHOP,
    "shop/flows.py": FLOWS,
    "shop/model.py": "import tidemill as tm\nclass Order(tm.Boundary):\n    pence: int\n",
    "shop/late.py": "def number() -> int:\n    return 1\n",
    "shop/data/prices.csv": "a,b\n",
}


def encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    """Return files as they are stored."""
    return {name: text.encode() for name, text in files.items()}


def archive_of(files: Mapping[str, str]) -> PackageContents:
    """Return a package as it comes from a registry."""
    return parse_archive(build_zip(encoded(files)), "shop-1.2.0.tidemill")


def small(code: str, manifest: str = "") -> PackageContents:
    """Return a package of one module."""
    return archive_of({"package.toml": f'[package]\nname = "shop"\nversion = "1.0.0"\n{manifest}', "shop.py": code})


@pytest.fixture
async def preparer(tmp_path: Path) -> AsyncIterator[PackagePreparer]:
    """A preparer with a place of its own, which leaves nothing when it is closed."""
    before = set(sys.modules)
    made = PackagePreparer(tmp_path / "copies", TrustPolicy(), SystemClock(), ProbeLimits(wall=30.0))
    yield made
    await made.close()
    assert listing(tmp_path / "copies") == []
    assert [name for name in set(sys.modules) - before if "@" in name] == []


def copies(tmp_path: Path) -> list[str]:
    """Return the copies that there are, by the names of their folders."""
    return sorted(one.name for one in (tmp_path / "copies").glob(f"{FOLDER_PREFIX}*/*") if one.name != LOCK_FILE)


async def test_a_package_is_made_ready_as_its_manifest_says(preparer: PackagePreparer, tmp_path: Path) -> None:
    """P-1, P-6: its definitions, the settings of its tasks, what it shares, and what the probe has seen."""
    folder = folder_of(tmp_path / "author", encoded({**FILES, "package.toml": MANIFEST + SETTINGS}))
    contents = read_folder(folder)
    prepared = await preparer.prepare(contents, "acme")
    package = prepared.package
    assert (package.name, package.version, package.digest) == ("shop", "1.2.0", contents.digest)
    assert (prepared.digest, prepared.manifest) == (contents.digest, contents.manifest)
    assert contents.digest == parse_archive(contents.to_archive(), "elsewhere").digest
    assert package.shared == {"till"}
    assert [one.name for one in (*package.reactors, *package.graphs, *package.workflows)] == ["till", "totals", "daily"]  # type: ignore[attr-defined]
    assert [one.name for one in prepared.metadata.workflows[0].tasks] == ["count", "totals", "fail"]
    task = package.workflows[0].tasks[0]
    assert (task.timeout, task.queue, task.executor) == (600.0, "big", "subprocess")
    assert task.retry is not None
    assert (task.retry.times, task.retry.delay, task.retry.on) == (5, 7.0, (KeyError,))
    assert package.workflows[0].location.file == str(folder / "shop" / "flows.py")
    for path in folder.rglob("*.*"):
        path.unlink()  # the author's files may go, and the copy stays
    assert task.function.call() == 1 + 4
    assert copies(tmp_path) == ["shop-1"]
    loan = prepared.add_reference()
    prepared.discard()
    assert task.function.call() == 1 + 4, "a task needs it"
    loan.release()
    loan.release()
    prepared.discard()
    await until(lambda: copies(tmp_path) == [])
    with pytest.raises(ImportError, match="the package was unloaded"):
        task.function.call()


def versions_of(prepared: PreparedPackage) -> dict[str, str]:
    """Return the versions of its workflows, as they will be run."""
    graphs = {one.name: one for one in prepared.package.graphs}
    return {one.name: one.with_graphs(graphs.get).wired().spec.version for one in prepared.package.workflows}


async def test_the_same_code_has_the_same_version_wherever_it_is_loaded(
    preparer: PackagePreparer, tmp_path: Path
) -> None:
    """W-19: in another namespace, from a folder or an archive; other settings or other code make another version."""
    changed = {**FILES, "shop/flows.py": FLOWS.replace("late.number() +", "late.number() -")}
    wanted = [
        archive_of(FILES),
        read_folder(folder_of(tmp_path / "author", encoded(FILES))),
        archive_of({**FILES, "package.toml": MANIFEST + SETTINGS}),
        archive_of({**FILES, "package.toml": MANIFEST + SETTINGS.replace("5", "6")}),
        archive_of(changed),
    ]
    prepared = await asyncio.gather(*(preparer.prepare(one, "acme") for one in wanted))
    first, again, *others = (versions_of(one)["daily"] for one in prepared)
    assert first == again
    assert len({first, *others}) == 4
    assert len(copies(tmp_path)) == 5
    assert prepared[0].package.workflows[0] is not prepared[1].package.workflows[0]
    for one in prepared:
        one.discard()


def test_settings_leave_what_was_declared_as_it_is() -> None:
    """A copy is configured; what is not set stays; settings of other workflows are no error, unknown tasks are."""
    flow = Workflow("a.flow")

    @flow.task(pool="db", priority=3)
    def one() -> int:
        return 1

    changed = flow.with_overrides({"a.flow.one": {"retries": 2, "pool": "big"}, "other.two": {"retries": 1}})
    assert (changed.tasks[0].pool, changed.tasks[0].priority, flow.tasks[0].pool) == ("big", 3, "db")
    assert (changed.wired().spec.tasks[0].tries, flow.wired().spec.tasks[0].tries) == (3, 1)
    assert changed.declaration is flow
    assert flow.with_overrides({}) is flow
    with pytest.raises(DefinitionError, match=r"no such task \(did you mean 'one'\?\)"):
        flow.with_overrides({"a.flow.on": {"retries": 2}})


# -- what is refused


async def refused(preparer: PackagePreparer, contents: PackageContents, tmp_path: Path) -> Exception:
    """Return why a package was not made ready, and see that nothing of it is left."""
    threads = threading.active_count()
    with pytest.raises((DefinitionError, RequestError, OperationError)) as raised:
        await preparer.prepare(contents, "acme")
    assert copies(tmp_path) == []
    assert [name for name in sys.modules if name.startswith("shop@")] == []
    await until(lambda: threading.active_count() <= threads + 2)  # those of the loop's pool
    return raised.value


async def test_a_rejected_package_leaves_nothing(preparer: PackagePreparer, tmp_path: Path) -> None:
    """P-2, P-7, P-10: problems are reported with file and line of the package."""
    error = await refused(preparer, small("import tidemill as tm\n1 / 0\n"), tmp_path)
    assert isinstance(error, ProbeError)
    assert str(error.problems[0]) == "shop.py:2: importing 'shop' failed: ZeroDivisionError: division by zero"
    error = await refused(preparer, small("", 'requires-python = ">=4"\n'), tmp_path)
    assert isinstance(error, RequestError)
    assert error.code == "unmet_requirement"
    code = "import tidemill as tm\nflow = tm.Workflow('flow')\n@flow.task\ndef one(): ...\n"
    error = await refused(preparer, small(code, '[tasks."flow.on"]\nretries = 1\n'), tmp_path)
    assert isinstance(error, ProbeError)
    assert "did you mean 'flow.one'?" in str(error)


async def test_definitions_that_differ_from_the_probe_are_rejected(
    preparer: PackagePreparer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-7: the steps of loading go by what the probe has seen."""
    monkeypatch.setenv("SHOP_FLOW", "other")
    code = (
        "import os\nimport tidemill as tm\nflow = tm.Workflow(os.environ.get('SHOP_FLOW', 'flow'))\n"
        "@flow.task\ndef one(): ...\n"
    )
    error = await refused(preparer, small(code), tmp_path)
    assert "its workflows differ from those that the probe found a moment ago: 'flow', 'other'" in str(error)
    code = "import os, sys\nimport tidemill as tm\nif 'SHOP_FLOW' in os.environ: sys.exit(3)\ng = tm.Graph('g')\n"
    code += "@g.node\ndef n(x: int): return x\n"
    error = await refused(preparer, small(code), tmp_path)
    assert str(error).startswith("package 'shop': shop.py:3: importing 'shop' failed: it ended the program, with")


async def test_signatures_are_checked_before_anything_is_run(tmp_path: Path) -> None:
    """P-9: nothing is even copied."""
    key = generate_key("alice")
    preparer = PackagePreparer(tmp_path / "copies", TrustPolicy(file_keys=[key.public], required=True), SystemClock())
    with pytest.raises(RequestError, match="not signed"):
        await preparer.prepare(archive_of(FILES), "acme")
    assert not (tmp_path / "copies").exists()
    (await preparer.prepare(sign(archive_of(FILES), key), "acme")).discard()
    await preparer.close()


class Gate(ModuleType):
    """Where an import waits until it is let go; there is none in the process of the probe."""

    def __init__(self) -> None:
        super().__init__("tidemill_test_gate")
        self.reached, self.opened = threading.Event(), threading.Event()

    def stand(self) -> None:
        """Wait."""
        self.reached.set()
        self.opened.wait()


@pytest.mark.parametrize("place", ["probe", "import"])
async def test_a_cancelled_preparation_leaves_nothing(
    preparer: PackagePreparer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """P-2: in the probe, and in the import that follows, which cannot be stopped: it clears up when it ends."""
    gate = Gate()
    waiting = "while gate is None: pass" if place == "probe" else "gate and gate.stand()"
    code = f"import sys\ngate = sys.modules.get('tidemill_test_gate')\n{waiting}\n"
    code += "import tidemill as tm\nflow = tm.Workflow('flow')\n@flow.task\ndef one(): ...\n"
    monkeypatch.setitem(sys.modules, "tidemill_test_gate", gate)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(preparer.prepare(small(code), "acme"), name="prepare")
        await until(lambda: gate.reached.is_set() if place == "import" else copies(tmp_path))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    gate.opened.set()
    await until(lambda: not copies(tmp_path) and not any(name.startswith("shop@") for name in tuple(sys.modules)))


async def test_the_limit_of_memory_is_named_with_the_way_out_and_is_not_for_developers(tmp_path: Path) -> None:
    """P-7: libraries reserve more than they use; a developer's machine has only their own code."""
    limits = probe_limits(Settings(probe_memory="300MiB", probe_timeout=20.0))
    assert (limits.wall, limits.cpu, limits.memory) == (20.0, 20, 300 * 2**20)
    preparer = PackagePreparer(tmp_path / "copies", TrustPolicy(), SystemClock(), limits)
    package = small("import tidemill as tm\nflow = tm.Workflow('flow')\n@flow.task\ndef one(): ...\nbytes(2**29)\n")
    with pytest.raises(ProbeError, match=r"shop.py:5: .*more than 0.293 GiB of.*raise the setting probe_memory"):
        await preparer.prepare(package, "acme")
    (await preparer.prepare(package, "acme", is_developer_code=True)).discard()
    await preparer.close()


async def test_an_import_that_does_not_end_in_the_node_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-7, P-12: although the probe came to an end; whenever it does here, nothing of it is left.

    It is not begun a second time as long as it hangs: threads would pile up. Other tenants and versions are.
    """
    gate = Gate()
    monkeypatch.setitem(sys.modules, "tidemill_test_gate", gate)
    code = "import sys\ngate = sys.modules.get('tidemill_test_gate')\ngate and gate.stand()\n"
    code += "import tidemill as tm\nflow = tm.Workflow('flow')\n@flow.task\ndef one(): ...\n"
    clock = VirtualClock()
    preparer = PackagePreparer(tmp_path / "copies", TrustPolicy(), clock, ProbeLimits(wall=7.0))

    async def let_time_pass() -> None:
        await until(gate.reached.is_set)
        clock.advance_to(7.0)

    async with asyncio.TaskGroup() as group:
        group.create_task(let_time_pass(), name="time")
        with pytest.raises(
            DefinitionError, match="importing it in the node took longer than 7 s, though not in the probe"
        ):
            await preparer.prepare(small(code), "acme")
    gate.reached.clear()
    with pytest.raises(
        ProbeError, match="importing it in the node took longer than 7 s, though not in the probe"
    ) as raised:
        await preparer.prepare(small(code), "acme")
    assert raised.value.is_transient
    assert not gate.reached.is_set()
    (await preparer.prepare(small(code.replace("gate and gate.stand()", "")), "acme")).discard()
    gate.opened.set()
    await until(lambda: not copies(tmp_path) and not any(name.startswith("shop@") for name in tuple(sys.modules)))
    (await preparer.prepare(small(code), "acme")).discard()
    await until(lambda: not copies(tmp_path))
    await preparer.close()
    assert listing(tmp_path / "copies") == []


async def test_what_is_printed_at_import_does_not_flood_the_node(
    preparer: PackagePreparer, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-7: the probe lets it pass, and in the node the first 64 KiB of it are heard; so also of what differs there."""
    streams = sys.stdout, sys.stderr
    code = "import logging, sys\nimport tidemill as tm\nflow = tm.Workflow('flow')\n@flow.task\ndef one(): ...\n"
    code += "print('first')\nfor _ in range(1000): print('x' * 500)\nsys.stderr.write('y' * 500_000)\n"
    code += (
        "sys.modules.get('tidemill.packages.loading.preparer') and print('z' * 10_000_000)\nlogging.warning('last')\n"
    )
    prepared = await preparer.prepare(small(code), "acme")
    out, err = capsys.readouterr()
    assert out.startswith("first\nxxx")
    assert out.endswith("\n[... the rest of what is printed at import is left out ...]\n")
    assert 65_536 < len(out) < 66_000
    assert err == ""
    assert (sys.stdout, sys.stderr) == streams
    prepared.discard()


async def test_a_copy_is_removed_in_the_background(
    preparer: PackagePreparer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-6: it may have thousands of files; the preparer does not close before they are gone."""
    prepared = await preparer.prepare(archive_of(FILES), "acme")
    opened, remove = threading.Event(), preparer.copies.remove

    def slowly(folder: Path) -> None:
        opened.wait(20)
        remove(folder)

    monkeypatch.setattr(preparer.copies, "remove", slowly)
    prepared.discard()
    assert not any(name.startswith("shop@") for name in sys.modules)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(preparer.close(), name="close")
        assert copies(tmp_path) == ["shop-1"]
        done, _ = await asyncio.wait([task], timeout=0.1)
        opened.set()
        assert not done, "it did not wait"
    assert listing(tmp_path / "copies") == []


# -- in a process of its own


async def test_a_task_of_a_package_runs_in_a_process_of_its_own(preparer: PackagePreparer, tmp_path: Path) -> None:
    """W-19: from the copy, with all settings, whatever became of the author's folder; old versions too."""
    folder = folder_of(tmp_path / "author", encoded({**FILES, "package.toml": MANIFEST + SETTINGS}))
    first = await preparer.prepare(read_folder(folder), "acme")
    (folder / "shop" / "late.py").write_text("def number() -> int:\n    return 10\n", encoding="utf-8")
    second = await preparer.prepare(read_folder(folder), "acme")
    assert versions_of(first) == versions_of(second)  # only what is called by the task has changed
    for path in folder.rglob("*.*"):
        path.unlink()
    async with open_harness("subprocess", tmp_path) as bench:
        for prepared, found in ((first, 5), (second, 14), (first, 5)):
            put(bench, prepared)
            assert await bench.value("count", workflow="daily", params={}) == found
        failure = await bench.run("fail", workflow="daily", params={})
        assert isinstance(failure, Failed)
        assert failure.error.message == "shop.model"
        assert f'File "{folder}/shop/flows.py", line 16, in fail' in failure.error.traceback
        assert "raise LookupError(Order.__module__)" in failure.error.traceback
        second.discard()
        third = await preparer.prepare(archive_of(FILES), "acme")
        put(bench, third)
        assert await bench.value("count", workflow="daily", params={}) == 5
        await until(lambda: len(servers()) == 1)  # those of what is loaded no more go
    first.discard()
    third.discard()


async def test_a_graph_of_another_package_is_not_there_in_another_process(
    preparer: PackagePreparer, tmp_path: Path
) -> None:
    prepared = await preparer.prepare(small(FLOWS.replace("from shop.model import Order", "Order = int")), "acme")
    other = await preparer.prepare(archive_of(FILES), "acme")
    async with open_harness("subprocess", tmp_path) as bench:
        put(bench, prepared, other)
        with pytest.raises(OperationError, match="task 'totals' calls graph 'totals' of another package"):
            await bench.executor.submit(bench.request("count", workflow="daily", params={}))
    prepared.discard()
    other.discard()


def put(bench: ExecutorHarness, prepared: PreparedPackage, other: PreparedPackage | None = None) -> None:
    """Let an executor run the workflow of a package, which may call graphs of another."""
    graphs = {one.name: one for one in (other or prepared).package.graphs}
    (daily,) = prepared.package.workflows
    bench.workflows["daily"] = daily.with_graphs(graphs.get)


def servers() -> list[int]:
    """Return the fork servers of this process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid() and SERVER_MODULE.encode() in Path("/proc", name, "cmdline").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


# -- copies


HOLDER = """\
import sys
from pathlib import Path
from tidemill.packages.loading.copies import PackageCopies
held = PackageCopies(Path(sys.argv[1]))
held.write(held.reserve("shop"), {"shop.py": b""})
print("ready", flush=True)
sys.stdin.read()
"""


def test_copies_of_a_process_that_was_killed_are_swept(tmp_path: Path) -> None:
    """P-2: by the next that comes by; what belongs to one that lives, and what is no folder of ours, stays."""
    (tmp_path / f"{FOLDER_PREFIX}link").symlink_to(tmp_path)
    (tmp_path / f"{FOLDER_PREFIX}file").write_text("x", encoding="utf-8")
    (tmp_path / f"{FOLDER_PREFIX}new").mkdir()  # another process is about to lock it
    arguments = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        mine = PackageCopies(tmp_path)
        mine.write(mine.reserve("shop"), {"shop.py": b"x"})
        assert len(list(tmp_path.glob(f"{FOLDER_PREFIX}*/shop-1/shop.py"))) == 2
        remove_stale_folders(tmp_path)
        assert len(list(tmp_path.glob(f"{FOLDER_PREFIX}*/shop-1/shop.py"))) == 2
        process.kill()
    remove_stale_folders(tmp_path)
    assert [one.read_bytes() for one in tmp_path.glob(f"{FOLDER_PREFIX}*/shop-1/shop.py")] == [b"x"]
    mine.close()
    assert listing(tmp_path) == [f"{FOLDER_PREFIX}file", f"{FOLDER_PREFIX}link", f"{FOLDER_PREFIX}new"]


def test_copies_that_cannot_be_written_are_an_operation_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(OperationError, match="packages cannot be copied to"):
        PackageCopies(tmp_path / "file").reserve("shop")
    held = PackageCopies(tmp_path)
    folder = held.reserve("shop")
    folder.write_text("in the way", encoding="utf-8")
    with pytest.raises(OperationError, match="a package cannot be copied to"):
        held.write(folder, {"shop.py": b""})
    held.close()
