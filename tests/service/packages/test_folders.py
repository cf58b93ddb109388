"""Package files on a node: atomic loads, signatures, and protection against downgrades."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.contract.executor_harness import until
from tests.service.package_files import shop, shop_in
from tests.service.whole_package import START, Node, traces
from tidemill.kernel.errors import StoreError
from tidemill.packages.format.archive import PackageContents, parse_archive, read_folder
from tidemill.packages.format.private_key import PrivateKey, generate_key
from tidemill.packages.format.signature import TrustPolicy, sign
from tidemill.packages.format.zip_format import SIGNATURE_FILE, build_zip
from tidemill.packages.publishing import Publisher
from tidemill.storage.tables.packages import TrustedKey
from tidemill.testing.faults.deploy_steps import DeployFaults

ALICE, BOB = generate_key("alice"), generate_key("bob")


def modules() -> list[str]:
    """Return the modules of packages in this process."""
    return sorted(name for name in sys.modules if "@" in name)


def copies(node: Node) -> list[Path]:
    """Return the copies of packages that a node has."""
    return node.probe.packages.copies


async def check_it_works(node: Node, number: int) -> None:
    """Let a firing and a run happen."""
    await node.push("orders", number)
    run = await node.start("daily")
    await node.settle()
    assert (await run.state()).outputs == {"count": number, "scored": {"score": number * 10}}
    [seen] = [sys.modules[name].SEEN for name in modules() if name.startswith("shop@") and "." not in name]
    assert seen[-1] == number


@pytest.mark.parametrize(("load", "undo"), [(3, 1), (6, 6)])
async def test_nothing_of_a_package_is_left_in_the_process(tmp_path: Path, load: int, undo: int) -> None:
    """P-2: modules and copies too, of a version that could not be loaded, and of one that was unloaded."""
    folder = shop_in(tmp_path / "shop")
    async with tm.testing.node("memory://", start=START) as node:
        faults = DeployFaults(node)
        clean, before = await traces(node), modules()
        faults.fail("apply", load, "after")
        with faults.failing(roll_back=undo, moments=["before", "after"]):
            with pytest.raises(StoreError):
                await node.load(folder)
            await node.advance("1m")
        assert await traces(node) == clean
        assert modules() == before
        await until(lambda: copies(node) == [])
        await node.load(folder)
        await check_it_works(node, 1)
        mine = modules()
        faults.fail("apply", load, "after")
        with faults.failing(roll_back=undo, moments=["before", "after"]):
            with pytest.raises(StoreError):
                await node.load(shop_in(tmp_path / "shop", "2.0.0", 2))
            await node.advance("1m")
        assert modules() == mine
        await until(lambda: len(copies(node)) == 1)
        await check_it_works(node, 1)
        shutil.rmtree(folder)
        with faults.failing(remove=undo, moments=["before", "after"]):
            with pytest.raises(tm.OperationError):
                await node.unload("shop")
            await node.advance("1m")
        assert await traces(node) == clean
        assert modules() == before
        await until(lambda: copies(node) == [])


async def test_a_run_that_a_failed_load_has_begun_finds_its_modules(tmp_path: Path) -> None:
    """P-2, P-6: its workflow was in place for a moment; what the run needs stays until its end, and no longer."""
    gate = tmp_path / "gate"
    package = "\n".join(
        [
            "import asyncio, pathlib, tidemill as tm",
            'slow = tm.Workflow("slow")',
            "@slow.task",
            "async def work() -> int:",
            f"    while not pathlib.Path({str(gate)!r}).exists():",
            "        await asyncio.sleep(0.001)",
            "    from shop import number",
            "    return number.NUMBER",
        ]
    )
    folder = shop_in(tmp_path / "shop", flows=package)
    async with tm.testing.node(start=START) as node:
        faults, runs, before = DeployFaults(node), [], modules()

        async def start(_: str, title: str) -> None:
            if title == "workflows" and not runs:
                runs.append(await node.start("slow"))

        faults.on_effect = start
        faults.fail("apply", 6, "after")
        with pytest.raises(StoreError):
            await node.load(folder)
        assert node.registry.packages() == node.registry.workflows() == []
        assert len(modules()) > len(before)
        gate.touch()
        await node.settle()
        assert (await runs[0].state()).outputs == {"work": 1}
        await node.advance("1m")
        assert modules() == before
        await until(lambda: copies(node) == [])


# -- signatures


def signed(contents: PackageContents, key: PrivateKey, folder: Path, **options: Any) -> Path:
    """Write a package as an archive that a key has signed."""
    path = folder / "shop.tidemill"
    path.write_bytes(sign(contents, key, **options).to_archive())
    return path


def tampered(path: Path) -> Path:
    """Change a file of a signed archive."""
    contents = parse_archive(path.read_bytes(), str(path))
    files = {**contents.files, "shop/number.py": b"NUMBER = 666\n"}
    path.write_bytes(build_zip({**files, SIGNATURE_FILE: contents.signature or b""}))
    return path


@pytest.mark.parametrize("place", ["store", "file"])
async def test_only_what_a_trusted_key_signed_is_loaded(tmp_path: Path, place: str) -> None:
    """P-9: keys of the store are of one tenant, those of the file are trusted for all; tampering names the file."""
    keys = tmp_path / "trusted"
    keys.write_text(f"{(ALICE if place == 'file' else BOB).public}\n")
    plain = read_folder(shop_in(tmp_path / "shop"))
    settings = {"require_signatures": True, "trusted_keys": str(keys)}
    async with tm.testing.node("memory://", settings=settings, start=START) as node:
        if place == "store":
            key = TrustedKey(tenant="public", id=ALICE.public.id, text=str(ALICE.public), at=START)
            await node.probe.packages.store.trusted_keys.add(key)
        cases = [
            (tmp_path / "shop", "public", "unsigned_package", ""),
            (signed(plain, generate_key("mallory"), tmp_path / "shop"), "public", "unknown_key", ""),
        ]
        for path, tenant, code, said in cases:
            await refused(node, path, tenant, code, said)
        path = tampered(signed(plain, ALICE, tmp_path))
        await refused(node, path, "public", "invalid_signature", "shop/number.py")
        path = signed(plain, ALICE, tmp_path, tenant="acme")
        await refused(node, path, "public", "wrong_tenant", "acme")
        path = signed(plain, ALICE, tmp_path)
        if place == "store":
            await refused(node, path, "acme", "unknown_key", "")
        assert await node.load(path) == "shop"


async def refused(node: Node, path: Path, tenant: str, code: str, said: str) -> None:
    """See that a package is refused, and that nothing has come of it."""
    with pytest.raises(tm.RequestError) as caught:
        await node.load(path, tenant=tenant)
    assert caught.value.code == code
    assert said in str(caught.value)
    assert node.registry.packages() == node.registry.packages("acme") == []
    assert await node.probe.packages.store.package_states.list_all() == []


# -- versions


async def test_a_version_below_the_recorded_one_is_rejected(tmp_path: Path, sqlite: str) -> None:
    """P-9: also after it was unloaded, and after a restart; allowed, the older one is the recorded one."""
    older, newer = shop_in(tmp_path / "1", "1.0.0", 1), shop_in(tmp_path / "2", "2.0.0", 2)
    async with tm.testing.node(sqlite, load=[newer], start=START) as node:
        for _ in range(2):
            with pytest.raises(tm.RequestError, match=r"1\.0\.0 is older than 2\.0\.0.*allow_downgrade=True") as caught:
                await node.load(older)
            assert (caught.value.code, caught.value.status) == ("downgrade", 409)
            if "shop" in node.registry.packages():
                await check_it_works(node, 2)
                await node.unload("shop")
    with pytest.raises(tm.RequestError, match=r"older than 2\.0\.0"):
        async with tm.testing.node(sqlite, load=[older]):
            pass
    async with tm.testing.node(sqlite, start=START) as node:
        await node.load(older, allow_downgrade=True)
        await check_it_works(node, 1)
        await node.load(older)
        assert await node.probe.packages.store.packages.recorded_version("public", "shop") == "1.0.0"
        assert node.registry.packages.find("public", "shop").version == "1.0.0"


async def test_a_version_that_was_slow_to_prepare_does_not_replace_a_newer_one(tmp_path: Path, sqlite: str) -> None:
    """P-9: looked at when it is prepared, and again when it takes its place."""
    older, newer = shop_in(tmp_path / "1", "1.0.0", 1), shop_in(tmp_path / "2", "2.0.0", 2)
    async with tm.testing.node(sqlite, start=START) as node:
        prepared = await node.probe.packages.prepare(read_folder(older))
        await node.load(newer)
        with pytest.raises(tm.RequestError, match=r"1\.0\.0 is older than 2\.0\.0") as caught:
            await node.probe.packages.install_prepared(prepared)
        prepared.discard()
        assert caught.value.code == "downgrade"
        await check_it_works(node, 2)


async def test_a_load_does_not_undo_a_downgrade_that_was_allowed_meanwhile(tmp_path: Path, sqlite: str) -> None:
    """P-9: a node that is just through with the newer version has not had the last word about what is recorded."""
    older, newer = shop_in(tmp_path / "1", "1.0.0", 1), shop_in(tmp_path / "2", "2.0.0", 2)
    async with tm.testing.node(sqlite, start=START) as node:
        packages, put = node.probe.packages.store.packages, node.probe.packages.store.package_states.upsert
        publisher = Publisher(packages, TrustPolicy(), node.clock)
        await publisher.publish(read_folder(newer), "public")

        async def publish_the_older(pages: Any) -> None:
            await put(pages)
            if pages[0].phase == "loading" and pages[0].version == "2.0.0":
                await publisher.publish(read_folder(older), "public", allow_downgrade=True)

        node.probe.packages.store.package_states.upsert = publish_the_older
        reconciler = await node.probe.packages.watch_registry()
        await reconciler.wait_until_settled()
        assert await packages.recorded_version("public", "shop") == "1.0.0"
        await node.advance("1m")
        await until(lambda: node.registry.packages.find("public", "shop").version == "1.0.0")
        assert await packages.recorded_version("public", "shop") == "1.0.0"
        await check_it_works(node, 1)


async def test_a_load_does_not_hide_a_newer_version_that_was_recorded_meanwhile(tmp_path: Path, sqlite: str) -> None:
    """P-9: what is recorded goes down by no accident."""
    async with tm.testing.node(sqlite, load=[shop_in(tmp_path / "1", "1.0.0", 1)], start=START) as node:
        packages, put = node.probe.packages.store.packages, node.probe.packages.store.package_states.upsert

        async def record_a_newer(pages: Any) -> None:
            await put(pages)
            await packages.record_version("public", "shop", "3.0.0")

        node.probe.packages.store.package_states.upsert = record_a_newer
        await node.load(shop_in(tmp_path / "2", "2.0.0", 2))
        assert await packages.recorded_version("public", "shop") == "3.0.0"


def test_the_files_are_a_package() -> None:
    """What the other tests rely on."""
    assert parse_archive(build_zip(shop()), "shop.tidemill").manifest.name == "shop"
