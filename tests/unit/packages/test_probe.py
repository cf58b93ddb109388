"""Probing a package in a child process: its metadata, and its problems."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.executor_harness import until
from tests.unit.packages.package_samples import folder_of
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.packages.format.manifest import read_manifest
from tidemill.packages.loading.metadata import (
    DeclaredAccumulator,
    DeclaredInput,
    DeclaredSchedule,
    DeclaredSubscription,
    DeclaredTask,
    DeclaredTrigger,
    PackageMetadata,
)
from tidemill.packages.loading.probe import ProbeError, WarmProbe, run_probe

SHOP = b"""\
from datetime import datetime

import tidemill as tm


class Order(tm.Boundary):
    pence: int


@tm.passthrough
def orders(event: Order) -> Order:
    return event


@tm.passthrough
def rates(event: Order) -> Order:
    return event


till = tm.Reactor("till", [orders, rates], when=tm.all_of(orders), strategy="sequential", durability="fire")
pricing = tm.Graph("pricing", reactor=till)


@pricing.node
def price(orders: Order, rates: Order | None) -> int:
    return orders.pence


totals = tm.Graph("totals")


@totals.node
def total(pence: list[int]) -> int:
    return sum(pence)
"""
FLOWS = b"""\
import tidemill as tm

from shop import totals


@tm.trigger(every="30s", timeout="5s", allow_concurrent=True)
def ready() -> tm.Fire | None:
    return None


daily = tm.Workflow(
    "daily",
    tags=["money"],
    schedule=[tm.Cron("0 6 * * *", timezone="Europe/Berlin", key="morning"), tm.Every("15m")],
    triggers=[ready, "elsewhere", tm.on_firing("till")],
)


@daily.task(retry=2, timeout="1m", pool="db", queue="heavy", executor="subprocess")
def pence() -> list[int]:
    return [1, 2]


daily.call(totals)


@daily.task(each="pence", rule="all_done")
def show(pence: int | None) -> int | None:
    return pence


daily.call("borrowed", after=[show])


@daily.task
def lend(borrowed: dict[str, int]) -> int:
    return len(borrowed)
"""
MANIFEST = b"""\
[package]
name = "shop"
version = "1.0.0"
modules = ["shop", "shop.flows"]

[reactors.till]
shared = true

[tasks."daily.pence"]
retries = 5
"""


async def tried(folder: Path, files: dict[str, bytes]) -> PackageMetadata:
    """Return what the probe finds in these files."""
    folder_of(folder, files)
    return await run_probe(folder, read_manifest(files["package.toml"]), clock=SystemClock())


async def problems_of(folder: Path, code: str, manifest: str = "") -> list[str]:
    """Return what the probe finds wrong with one module, as editors read it."""
    head = '[package]\nname = "shop"\nversion = "1.0.0"\n'
    with pytest.raises(ProbeError) as raised:
        await tried(folder, {"package.toml": f"{head}{manifest}".encode(), "shop.py": code.encode()})
    assert isinstance(raised.value, DefinitionError)
    assert raised.value.subject == "package 'shop'"
    return list(map(str, raised.value.problems))


async def test_everything_that_a_package_declares_comes_back(tmp_path: Path) -> None:
    """P-1, P-7: one frozen value, in which files are named as in the package; nothing is written to the folder."""
    files = {"package.toml": MANIFEST, "shop/__init__.py": SHOP, "shop/flows.py": FLOWS}
    found = await tried(tmp_path, files)
    assert (found.name, found.version, found.modules) == ("shop", "1.0.0", ("shop", "shop.flows"))
    (till,) = found.reactors
    assert (till.name, till.mode, till.criteria) == ("till", "all", ("orders",))
    assert (till.strategy, till.durability) == ("sequential", "fire")
    assert till.accumulators[0] == DeclaredAccumulator(name="orders", kind="passthrough", boundary="Order")
    assert till.location == Location("shop/__init__.py", 20)
    assert [(one.name, one.reactor, one.terminals) for one in found.graphs] == [
        ("pricing", "till", ("price",)),
        ("totals", None, ("total",)),
    ]
    assert [(one.name, one.required) for one in found.graphs[0].inputs] == [("orders", True), ("rates", False)]
    assert found.graphs[1].inputs == (DeclaredInput(name="pence", type="list[int]", required=True),)
    ready = DeclaredTrigger(
        name="ready", location=Location("shop/flows.py", 6), every=30.0, timeout=5.0, allow_concurrent=True
    )
    assert found.triggers == (ready,)
    (daily,) = found.workflows
    assert (daily.tags, daily.triggers, daily.graphs) == (("money",), ("ready", "elsewhere"), ("totals", "borrowed"))
    assert daily.subscriptions == (DeclaredSubscription(kind="on_firing", facts={"reactor": "till", "when": None}),)
    assert daily.schedules == (
        DeclaredSchedule(key="morning", rule="0 6 * * *", timezone="Europe/Berlin"),
        DeclaredSchedule(key="default", rule="every 0:15:00"),
    )
    pence = DeclaredTask(name="pence", retries=2, timeout=60.0, pool="db", queue="heavy", executor="subprocess")
    assert daily.tasks[0] == pence
    assert [(one.name, one.each, one.rule, one.graph, one.after) for one in daily.tasks[1:]] == [
        ("totals", None, "all_success", "totals", ("pence",)),
        ("show", "pence", "all_done", None, ("pence",)),
        ("borrowed", None, "all_success", "borrowed", ("show",)),
        ("lend", None, "all_success", None, ("borrowed",)),
    ]
    written = sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file())
    assert written == sorted(files)


async def test_every_problem_of_what_is_declared_is_reported(tmp_path: Path) -> None:
    """P-10: of workflows, graphs and the manifest at once, each with its line."""
    code = """\
import tidemill as tm
first, second = tm.Workflow("first"), tm.Workflow("second")
@first.task
def one(missing: int) -> int: return 1
@second.task
def two() -> int: return 2
graph = tm.Graph("graph", reactor="till")
@graph.node
def node(*values: int) -> int: return 3
@tm.passthrough
def orders(event: int) -> int: return event
till = tm.Reactor("till", [orders])
again = tm.Workflow("third")
"""
    manifest = '[reactors.tiller]\nshared = true\n[tasks."second.too"]\nretries = 1\n[tasks."first.one"]\nretries = 1\n'
    told = await problems_of(tmp_path, code, manifest)
    places = ["shop.py:3", "shop.py:13", "shop.py:8", "package.toml:4", "package.toml:6"]
    assert [one.split(": ")[0] for one in told] == places
    assert "'missing'" in told[0]
    assert told[1].endswith("a workflow needs at least one task")
    assert "takes *values" in told[2]
    assert told[3].endswith("no module declares reactor 'tiller' (did you mean 'till'?)")
    assert told[4].endswith("no workflow has that task (did you mean 'second.two'?)")


async def test_a_state_that_cannot_begin_is_reported(tmp_path: Path) -> None:
    """P-7: its class is the author's code, and is tried here first: it may end the process, or never end itself."""
    code = """\
import sys
import tidemill as tm
class Total(tm.Boundary):
    value: int = 0
    def __post_init__(self): sys.exit(3)
@tm.passthrough(state=Total)
def orders(event: int, state: Total) -> Total: return state
till = tm.Reactor("till", [orders])
"""
    (told,) = await problems_of(tmp_path, code)
    assert told.startswith("shop.py:6: state= of accumulator 'orders' begins as Total(): SystemExit: 3")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 1\nraise ValueError('no')", "shop.py:2: importing 'shop' failed: ValueError: no"),
        ("x = (", "shop.py:1: importing 'shop' failed: SyntaxError: '(' was never closed"),
        ("import nowhere_at_all", "shop.py:1: importing 'shop' failed: ModuleNotFoundError: No module named 'nowhere"),
        ("raise KeyboardInterrupt", "shop.py:1: importing 'shop' failed: KeyboardInterrupt"),
        ("import json\njson.loads('{')", "shop.py:2: importing 'shop' failed: JSONDecodeError"),
        (
            "import sys\nsys.exit(0)",
            "shop.py:2: importing 'shop' failed: it ended the program, with SystemExit(0)",
        ),
        ("import tidemill as tm\ntm.Workflow('')", "shop.py:2: a workflow needs a name"),
        ("import tidemill as tm\ntm.Cron('99 * * * *')", "shop.py:2: '99' is not a valid minute"),
        ("import tidemill as tm\ntm.Cron('0 6 * * *',\n timezone='Mars')", "shop.py:2: 'Mars' is not a time zone"),
        ("import tidemill as tm\ndef every():\n return tm.Every('abc')\nx = every()", "shop.py:3: 'abc' is not a"),
        ("import tidemill as tm\ntm.Retry(-1)", "shop.py:2: the first argument counts further tries"),
        ("x = 1", "package.toml:1: nothing is declared in its modules (shop)"),
        ("class E(Exception):\n def __str__(self): 1/0\nraise E", "shop.py:3: importing 'shop' failed: E: (its text"),
    ],
)
async def test_what_fails_at_import_is_reported_with_its_line(tmp_path: Path, code: str, problem: str) -> None:
    """P-7, P-10, F69, F71: errors, missing modules, SystemExit; what the manifest does not say is at its start."""
    (told,) = await problems_of(tmp_path, code)
    assert told.startswith(problem)


async def test_modules_that_are_not_there_are_told(tmp_path: Path) -> None:
    """P-7: what the manifest names must be in the package, also if a module of that name is installed."""
    manifest = 'modules = ["shop.flows", "msgspec", "goods"]\n'
    assert await problems_of(tmp_path, "", manifest) == [
        "package.toml:4: package.toml names module 'shop.flows', which is not there",
        "package.toml:4: package.toml names module 'msgspec', which is not there",
        "package.toml:4: package.toml names module 'goods', which is not there",
    ]


async def test_a_module_may_be_called_like_one_that_tidemill_needs(tmp_path: Path) -> None:
    """P-7: it hides that one inside the package only."""
    files = {
        "package.toml": b'[package]\nname = "shop"\nversion = "1.0.0"\nmodules = ["shop", "msgspec"]\n',
        "shop.py": b"import tidemill as tm, msgspec\nflow = tm.Workflow(msgspec.NAME)\n@flow.task\ndef one(): ...\n",
        "msgspec.py": b"NAME = 'mine'\n",
    }
    assert [one.name for one in (await tried(tmp_path, files)).workflows] == ["mine"]


async def test_problems_name_modules_as_the_author_does(tmp_path: Path) -> None:
    """P-10: a class of the package is not called by what its module is called in this process."""
    code = """\
import tidemill as tm
class Order(tm.Boundary): ...
flow = tm.Workflow("flow")
@flow.task
def one() -> list[Order]: return []
@flow.task
def two(one: dict[str, Order]) -> int: return 1
"""
    told, *_ = await problems_of(tmp_path, code)
    assert "takes dict[str, shop.Order], which can never arrive: task 'one' gives list[shop.Order]" in told


async def test_what_could_be_imported_is_checked_although_another_module_fails(tmp_path: Path) -> None:
    """P-10: all problems at once, but none that only follows from a failed import."""
    files = {"package.toml": MANIFEST, "shop/__init__.py": b"", "shop/flows.py": b"import tidemill as tm\n1 / 0\n"}
    files["shop/__init__.py"] = b"import tidemill as tm\nempty = tm.Workflow('empty')\n"
    with pytest.raises(ProbeError) as raised:
        await tried(tmp_path, files)
    assert list(map(str, raised.value.problems)) == [
        "shop/flows.py:2: importing 'shop.flows' failed: ZeroDivisionError: division by zero",
        "shop/__init__.py:2: a workflow needs at least one task",
    ]


async def test_two_modules_may_not_declare_one_name(tmp_path: Path) -> None:
    """P-1: they are loaded as one; a definition that one imports from the other is one."""
    files = {
        "package.toml": MANIFEST.split(b"[reactors")[0],
        "shop/__init__.py": b'import tidemill as tm\ngraph = tm.Graph("g")\n@graph.node\ndef n(x: int): return x\n',
        "shop/flows.py": b'from shop import *\nimport tidemill as tm\nother = tm.Graph("g")\n',
    }
    with pytest.raises(ProbeError, match=r"shop/flows.py:3: two graphs are named 'g', the other at shop/__init__.py:2"):
        await tried(tmp_path, files)
    files["shop/flows.py"] = b"from shop import *\n"
    assert [one.name for one in (await tried(tmp_path, files)).graphs] == ["g"]


async def test_a_name_that_is_declared_twice_hides_nothing_else(tmp_path: Path) -> None:
    """P-10: all problems at once."""
    code = """\
import tidemill as tm
one, two = tm.Graph("g"), tm.Graph("g")
@one.node
def first(x: int) -> int: return x
@two.node
def second(x: int) -> int: return x
flow = tm.Workflow("flow")
@flow.task
def task(nope: int) -> int: return nope
"""
    twice, wrong = await problems_of(tmp_path, code)
    assert twice == "shop.py:2: two graphs are named 'g', the other at shop.py:2; rename one of them"
    assert wrong.startswith("shop.py:8: ")
    assert "'nope'" in wrong


async def test_what_an_error_says_cannot_pass_for_something_else(tmp_path: Path) -> None:
    """P-10: no control characters, and a line of its own is indented."""
    code = "raise ValueError('\\x1b]0;owned\\x07 \\x1b[2J\\nfake: shop 1.0.0 is sound')"
    (told,) = await problems_of(tmp_path, code)
    said = "importing 'shop' failed: ValueError: ·]0;owned· ·[2J\n    fake: shop 1.0.0 is sound"
    assert told == f"shop.py:1: {said}"


@pytest.mark.parametrize(
    ("code", "may_pass"),
    [
        ("import os\nos.kill(os.getpid(), 9)", True),
        ("import ctypes\nctypes.string_at(0)", True),
        ("x = bytes(3_000_000_000)", True),
        ("open('/nowhere/at/all')", True),
        ("import nowhere_at_all", True),
        ("from json import nothing", True),
        ("import os\nos._exit(0)", False),
        ("raise ValueError", False),
        ("x = (", False),
        ("x = 1", False),
        ("print('x' * 2_000_000)", False),
    ],
)
async def test_what_may_be_the_fault_of_the_machine_is_distinguished(
    tmp_path: Path, code: str, *, may_pass: bool
) -> None:
    """P-12: memory, files, libraries and signals; the rest is the package's own."""
    with pytest.raises(ProbeError) as raised:
        await tried(
            tmp_path, {"package.toml": b'[package]\nname = "shop"\nversion = "1.0.0"\n', "shop.py": code.encode()}
        )
    assert raised.value.is_transient is may_pass


async def test_a_package_sees_little_of_where_it_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-7: nothing of the node's environment, no descriptors, an empty folder, a group of its own."""
    monkeypatch.setenv("SECRET_KEY", "hush")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    with (tmp_path / "held").open("w") as held:
        held.write("x")
        code = """
import os, sys
print(sorted(os.environ), os.listdir(), os.getpgid(0) == GROUP, sys.stdin.read() == "", sys.argv[1:])
links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd") if int(n) > 2]
print([os.readlink(one).partition("[")[0] for one in links if os.path.lexists(one)])
print([one for one in sys.path if "elsewhere" in one or "staged" in one])
raise ValueError
"""
        (told,) = await problems_of(tmp_path / "staged", code.replace("GROUP", str(os.getpgid(0))))
    environment, descriptors, path = told.splitlines()[-3:]
    assert "SECRET" not in environment
    assert environment.endswith("[] False True []")
    assert descriptors.strip() == "['pipe:', 'pipe:']"  # for the answer, and to hear of the end of its parent
    assert path.strip() == "[]"


LEAVE = """\
import ctypes, os
from pathlib import Path
is_refused = ctypes.CDLL(None).umount2(b'/proc', 2) != 0
rights = [line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('CapEff')]
print(is_refused, int(rights[0].split()[1], 16) & (1 << 19 | 1 << 21))
"""


async def test_a_package_cannot_leave_its_namespace(tmp_path: Path) -> None:
    """P-7: neither root nor a program that the package starts may unmount its /proc, and see the node, or trace it."""
    start = "import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', CODE], text=True))\n"
    (told,) = await problems_of(tmp_path, f"CODE = {LEAVE!r}\n{LEAVE}{start}raise ValueError")
    assert [line.strip() for line in told.splitlines() if line.strip()][-2:] == ["True 0", "True 0"]


ISOLATE = """\
import os, threading
from tidemill.packages.loading.probe_isolation import drop_capabilities, isolate
drop_capabilities(all_of_them=False)  # root, too, needs a user namespace now
threading.Thread(target=threading.Event().wait, daemon=True).start()
isolate(os.pipe()[0])
print('imported', flush=True)
os._exit(0)
"""


def test_a_probe_with_a_thread_does_without_a_namespace() -> None:
    """P-7: a library that starts a thread with Python keeps the system from making a user namespace."""
    done = subprocess.run([sys.executable, "-c", ISOLATE], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.returncode) == ("imported\n", 0), done.stderr


def test_an_error_travels_whole() -> None:
    """It may be sent to another process."""
    error = ProbeError([Problem(message="no")], "package 'x'", "printed", is_transient=True)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.output, again.is_transient) == (ProbeError, str(error), "printed", True)


# -- a process that was started before


def kill(number: int) -> None:
    """Kill a child, and leave it to be waited for."""
    os.kill(number, signal.SIGKILL)
    os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)


async def test_a_warm_probe_is_used_once_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-7: there is none before the first package; it finds what a fresh one does, also of one that exits."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    warm_probe, seen = WarmProbe(), set()
    folder, files = tmp_path / "shop", {"package.toml": MANIFEST, "shop/__init__.py": SHOP, "shop/flows.py": FLOWS}
    fresh = await tried(folder, files)
    for code in (SHOP, b"import os\nos._exit(0)\n", SHOP):
        folder_of(folder, {**files, "shop/__init__.py": code})
        before = warm_probe.pid
        work = run_probe(folder, read_manifest(MANIFEST), clock=SystemClock(), warm_probe=warm_probe)
        if code is SHOP:
            assert await work == fresh
        else:
            with pytest.raises(ProbeError, match="ended the process, with exit code 0, before it was complete"):
                await work
        await until(lambda: warm_probe.pid is not None)
        assert warm_probe.pid not in {before, *seen}
        seen.add(before)
    last = warm_probe.pid
    assert last is not None
    kill(last)  # one that is dead is no use
    assert await run_probe(folder, read_manifest(MANIFEST), clock=SystemClock(), warm_probe=warm_probe) is not None
    await until(lambda: warm_probe.pid is not None)
    last = warm_probe.pid
    warm_probe.close()
    warm_probe.start()
    assert warm_probe.pid is None
    assert not Path("/proc", str(last)).exists()
    assert [one.name for one in tmp_path.iterdir()] == ["shop"]
