"""The code of remote attempts: bundles of packages, which units download, and modules that are installed there."""

from pathlib import Path

import pytest

from tests.contract.executor_harness import until
from tests.remote import flow
from tests.remote.local_launcher import LocalLauncher
from tests.remote.remote_node import TIMEOUT, remote_node
from tidemill.attempt.attempt import prepare_code
from tidemill.attempt.connection import LeaseTimer, ServerConnection, take_environment
from tidemill.engine.workflows.executors.remote.orders import InstalledCode, digest_bundle, pack_folder, unpack_bundle
from tidemill.kernel.errors import OperationError
from tidemill.server.serving import reachable_url

MANIFEST = '[package]\nname = "shop"\nversion = "{version}"\nmodules = ["shop"]\n'
FLOW = """\
import time
from pathlib import Path

import tidemill as tm
from shop.number import NUMBER

flow = tm.Workflow("flow")

@flow.task(executor="kubernetes")
def count(ctx: tm.Context) -> list[object]:
    Path({started!r}).touch()
    while not Path({gate!r}).exists():
        time.sleep(0.01)
    return [NUMBER, (Path(__file__).parent / "words.txt").read_text()]
"""


def write_package(folder: Path, version: str, number: int) -> Path:
    """Write a package of two modules and a file of data."""
    root = folder / f"shop-{version}"
    (root / "shop").mkdir(parents=True)
    (root / "package.toml").write_text(MANIFEST.format(version=version))
    paths = {"started": str(folder / f"started-{number}"), "gate": str(folder / "gate")}
    (root / "shop" / "__init__.py").write_text(FLOW.format(**paths))
    (root / "shop" / "number.py").write_text(f"NUMBER = {number}\n")
    (root / "shop" / "words.txt").write_text("data beside the code")
    return root


async def test_a_unit_downloads_the_package_in_the_version_of_its_run(
    store: str, launcher: LocalLauncher, tmp_path: Path
) -> None:
    """W-19: the pinned version, with its data, although a newer one is loaded before the unit asks for it."""
    old, new = write_package(tmp_path, "1.0.0", 1), write_package(tmp_path, "2.0.0", 2)
    async with remote_node(store, launcher, load=[str(old)]) as server:
        first = await server.node.start("flow")
        await until(lambda: launcher.launches)
        await server.node.load(str(new))
        second = await server.node.start("flow")
        await until((tmp_path / "started-1").exists)
        await until((tmp_path / "started-2").exists)
        (tmp_path / "gate").touch()
        outputs = [(await run.wait(timeout=TIMEOUT)).tasks["count"].output for run in (first, second)]
        assert outputs == [[1, "data beside the code"], [2, "data beside the code"]]
        versions = {launch.version for launch in launcher.launches}
        assert len(versions) == 2


async def test_a_module_that_is_not_installed_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    """An image without the code."""
    code = InstalledCode(module="no_such_module", file=str(tmp_path / "no_such_module.py"), path=())
    async with ServerConnection("http://127.0.0.1:1", "tma_x", LeaseTimer()) as connection:
        with pytest.raises(OperationError, match="publish the code as a package, which is downloaded, or install it"):
            await prepare_code(code, connection, tmp_path)
        installed = InstalledCode(module="tests.remote.flow", file="/elsewhere/flow.py", path=())
        location = await prepare_code(installed, connection, tmp_path)
        assert location.file == flow.__file__


def test_a_bundle_has_one_digest_and_is_checked(tmp_path: Path) -> None:
    """Equal folders have equal bundles; anything else is refused."""
    source, target = write_package(tmp_path, "1.0.0", 1), tmp_path / "unpacked"
    archive = pack_folder(source)
    (source / "shop" / "__pycache__").mkdir()
    (source / "shop" / "__pycache__" / "x.pyc").write_bytes(b"cached")
    assert pack_folder(source) == archive
    unpack_bundle(archive, digest_bundle(archive), target)
    assert (target / "shop" / "words.txt").read_text() == "data beside the code"
    with pytest.raises(OperationError, match="not the ordered one"):
        unpack_bundle(archive + b"x", digest_bundle(archive), target)


def test_the_token_leaves_the_environment(tmp_path: Path) -> None:
    """Programs that the code starts do not get it."""
    (tmp_path / "token").write_text("tma_secret\n")
    environment = {"TIDEMILL_SERVER_URL": "http://x", "TIDEMILL_ATTEMPT_TOKEN_FILE": str(tmp_path / "token")}
    assert take_environment(environment) == ("http://x", "tma_secret")
    assert environment == {"TIDEMILL_SERVER_URL": "http://x"}
    for missing in ({}, {"TIDEMILL_SERVER_URL": "http://x"}, {"TIDEMILL_ATTEMPT_TOKEN": "x"}):
        with pytest.raises(OperationError, match="the environment has no TIDEMILL_"):
            take_environment(dict(missing))


@pytest.mark.parametrize(
    ("url", "reachable"),
    [
        ("http://127.0.0.1:8080", None),
        ("http://[::1]:8080", None),
        ("http://0.0.0.0:8080", None),
        ("http://10.0.0.5:8080", "http://10.0.0.5:8080"),
    ],
)
def test_a_server_knows_its_own_address_only_if_it_listens_on_one(url: str, reachable: str | None) -> None:
    assert reachable_url(url) == reachable
