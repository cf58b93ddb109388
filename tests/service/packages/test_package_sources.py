"""Packages from several origins: a program, a watched folder, the registry of the store."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.contract.executor_harness import until
from tests.service.package_folders import package, without_child_processes
from tidemill.kernel.clock import SystemClock
from tidemill.packages.format.archive import read_folder
from tidemill.packages.format.private_key import generate_key
from tidemill.packages.format.signature import TrustPolicy, sign
from tidemill.packages.loading.preparer import PackagePreparer
from tidemill.packages.publishing import Publisher
from tidemill.packages.status import PackageStatus
from tidemill.testing.probes import PackageProbe

FLOW = "import tidemill as tm\n\nflow = tm.Workflow('{name}')\n\n\n@flow.task\ndef one() -> int:\n    return 1\n"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)


def shop(folder: Path, version: str = "1.0.0", name: str = "flow") -> Path:
    """Write a version of package `shop`."""
    return package(folder / "shop", FLOW.format(name=name), version)


def the_status(node: tm.Node) -> PackageStatus:
    """Return how the one package stands."""
    [status] = node.packages()
    return status


# -- several origins of one package


async def test_a_package_of_the_program_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    """P-10: the status shows the running version, and beside it why the folder's one is not loaded."""
    shop(tmp_path / "folder")
    async with tm.Node(load=[shop(tmp_path / "own", "3.0.0")]) as node:
        await (await node.watch_folder(tmp_path / "folder")).wait_until_settled()
        status = the_status(node)
        assert (status.version, status.wanted, status.state, status.title) == ("3.0.0", "3.0.0", "loaded", "")
        assert status.reason.startswith(f"{tmp_path}/folder/shop: a package 'shop' is loaded already, from elsewhere")
        await node.unload("shop")
        await until(lambda: the_status(node).version == "1.0.0")
        await until(lambda: the_status(node).reason == "")


async def test_the_source_that_loaded_a_package_decides_its_status(tmp_path: Path) -> None:
    """P-10: the registry, which has the same package, does not hide the status of the folder's one."""
    folder = shop(tmp_path / "folder")
    async with tm.Node() as node:
        await (await node.watch_folder(tmp_path / "folder")).wait_until_settled()
        publisher = Publisher(PackageProbe.of(node).store.packages, TrustPolicy(), SystemClock())
        await publisher.publish(read_folder(shop(tmp_path / "published", "2.0.0")), "public")
        await (await PackageProbe.of(node).watch_registry()).wait_until_settled()
        status = the_status(node)
        assert (status.version, status.wanted, status.state, status.title) == ("1.0.0", "1.0.0", "loaded", str(folder))
        assert "shop 2.0.0 in the registry of 'public': a package 'shop' is loaded already" in status.reason
        (folder / "shop" / "__init__.py").write_text("import tidemill\n1 / 0\n")
        await until(lambda: the_status(node).state == "failed")
        status = the_status(node)
        assert (status.version, status.title) == ("1.0.0", str(folder))
        assert "ZeroDivisionError" in status.reason.partition("shop 2.0.0 in the registry")[0]


# -- desired packages stay


@pytest.mark.parametrize("place", ["folder", "registry"])
async def test_a_package_that_its_source_wants_cannot_be_unloaded(tmp_path: Path, place: str) -> None:
    """P-12: the source would load it again; once removed there, it is unloaded."""
    folder = shop(tmp_path / "folder")
    async with tm.Node(settings={"package_poll_interval": "50ms"}) as node:
        publisher = Publisher(PackageProbe.of(node).store.packages, TrustPolicy(), SystemClock())
        if place == "folder":
            reconciler = await node.watch_folder(tmp_path / "folder")
        else:
            await publisher.publish(read_folder(folder), "public")
            reconciler = await PackageProbe.of(node).watch_registry()
        await reconciler.wait_until_settled()
        origin = f"folder {tmp_path}/folder" if place == "folder" else "registry"
        with pytest.raises(tm.RequestError, match=f"is wanted by the {origin}, which would load it again") as caught:
            await node.unload("shop")
        assert str(caught.value).endswith(": remove it there")
        assert (caught.value.code, caught.value.status) == ("wanted", 409)
        assert node.registry.workflows() == ["flow"]
        if place == "folder":
            shutil.rmtree(folder)
        else:
            await publisher.withdraw("public", "shop")
        await until(lambda: node.packages() == [])
        with pytest.raises(tm.RequestError) as caught:
            await node.unload("shop")
        assert caught.value.code == "package_not_found"


# -- downgrades


async def test_a_folder_is_rolled_back(tmp_path: Path) -> None:
    """P-9: the owner of a watched folder may put an older version there."""
    shop(tmp_path / "folder", "2.0.0")
    async with tm.Node(settings={"packages": str(tmp_path / "folder")}) as node:
        await until(lambda: node.registry.packages() == ["shop"])
        shop(tmp_path / "folder", "1.0.0")
        await until(lambda: the_status(node).version == "1.0.0")


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_a_folder_whose_packages_are_signed_is_not_rolled_back_by_accident(
    tmp_path: Path, is_allowed: bool
) -> None:
    """P-9: write access to the folder does not bring back an older signed version, unless the operator allows it."""
    key, folder = generate_key("alice"), tmp_path / "folder"
    (tmp_path / "trusted").write_text(f"{key.public}\n")
    folder.mkdir()

    def put(version: str) -> None:
        packed = sign(read_folder(shop(tmp_path / version, version)), key).to_archive()
        (tmp_path / "new").write_bytes(packed)
        os.replace(tmp_path / "new", folder / "shop.tidemill")

    put("2.0.0")
    settings = {"require_signatures": True, "trusted_keys": str(tmp_path / "trusted"), "allow_downgrade": is_allowed}
    async with tm.Node(settings=settings) as node:
        await (await node.watch_folder(folder)).wait_until_settled()
        assert the_status(node).version == "2.0.0"
        put("1.0.0")
        await until(lambda: the_status(node).state == "failed" or the_status(node).version == "1.0.0")
        assert the_status(node).version == ("1.0.0" if is_allowed else "2.0.0")
        assert is_allowed or "1.0.0 is older than 2.0.0" in the_status(node).reason


async def test_an_operator_may_allow_older_versions(tmp_path: Path, sqlite: str) -> None:
    """P-9: the setting applies at the start and to `load`, unless its argument says otherwise."""
    older, newer = shop(tmp_path / "1", "1.0.0"), shop(tmp_path / "2", "2.0.0")
    async with tm.Node(sqlite, load=[newer]):
        pass
    with pytest.raises(tm.RequestError, match=r"older than 2\.0\.0.*, as an argument or as a setting"):
        async with tm.Node(sqlite, load=[older]):
            pass
    async with tm.Node(sqlite, load=[older], settings={"allow_downgrade": True}) as node:
        await node.load(newer)
        with pytest.raises(tm.RequestError) as caught:
            await node.load(older, allow_downgrade=False)
        assert caught.value.code == "downgrade"
        await node.load(older)
        assert the_status(node).version == "1.0.0"


# -- loading several packages together


async def test_packages_that_are_loaded_together_are_prepared_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-12: preparations run in parallel; the first error is raised, and nothing is left."""
    paths = [package(tmp_path / name, FLOW.format(name=name)) for name in ("one", "two", "three")]
    async with tm.Node() as node:
        prepare, together, packages = PackagePreparer.prepare, asyncio.Barrier(3), PackageProbe.of(node)

        async def meet(*package: Any, **options: Any) -> object:
            await together.wait()
            return await prepare(*package, **options)

        monkeypatch.setattr(PackagePreparer, "prepare", meet)
        async with asyncio.timeout(20):
            assert list((await packages.load_all(paths)).values()) == ["one", "two", "three"]
            (tmp_path / "two" / "two" / "__init__.py").write_text("import tidemill\n2 / 0\n")
            (tmp_path / "three" / "three" / "__init__.py").write_text("import tidemill\n3 / 0\n")
            with pytest.raises(tm.DefinitionError, match="package 'two'"):
                await packages.load_all(paths)
        await until(lambda: len(packages.copies) == 3)


async def test_only_a_watched_folder_keeps_a_warm_probe(tmp_path: Path) -> None:
    """P-7: it costs memory, which a node that loads packages once does not need."""
    async with tm.Node(load=[shop(tmp_path / "own")]) as node:
        packages = PackageProbe.of(node)
        assert not packages.has_warm_probe
        await node.watch_folder(tmp_path / "folder")
        assert packages.has_warm_probe
        assert packages.warm_probe_pid is None, "there was no package yet"
