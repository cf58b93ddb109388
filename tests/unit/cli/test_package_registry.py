"""`tidemill package` and the registry of a store: upload, list, unload, and trusted keys."""

import asyncio
import json
from pathlib import Path

import pytest

import tidemill as tm
from tests.service.package_folders import package as write_package
from tests.unit.cli.command_line import run
from tidemill.packages.format.public_key import PublicKey

STORE = "sqlite:///tidemill.db"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a store, a package and a key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMILL_STORE", STORE)
    assert run(monkeypatch, "db", "upgrade") == 0
    assert run(monkeypatch, "tenant", "create", "acme") == 0
    for command in (["new", "market"], ["key", "alice"]):
        assert package(monkeypatch, *command) == 0
    capsys.readouterr()
    return tmp_path


def package(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a verb of `tidemill package`."""
    return run(monkeypatch, "package", *arguments)


def set_version(here: Path, version: str) -> None:
    """Give the package another version."""
    manifest = here / "market" / "package.toml"
    lines = [f'version = "{version}"' if one.startswith("version") else one for one in manifest.read_text().split("\n")]
    manifest.write_text("\n".join(lines))


def test_a_package_is_published_listed_and_taken_back(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people, and for programs; a folder and its archive are the same package."""
    assert package(monkeypatch, "list") == 0
    assert capsys.readouterr().out == "no packages; publish one with `tidemill package upload`\n"
    assert package(monkeypatch, "upload", "market") == 0
    assert capsys.readouterr().out.startswith("market 0.1.0 is published, 1,")
    assert package(monkeypatch, "build", "market") == 0
    assert package(monkeypatch, "upload", "market-0.1.0.tidemill", "--tenant", "acme", "--store", STORE) == 0
    capsys.readouterr()
    for tenant in ("public", "acme"):
        assert package(monkeypatch, "list", "-o", "json", "--tenant", tenant) == 0
        (listed,) = json.loads(capsys.readouterr().out)
        assert (listed["name"], listed["published"], listed["state"]) == ("market", "0.1.0", "published")
        assert listed["size"] == (here / "market-0.1.0.tidemill").stat().st_size
        assert len(listed["digest"]) == 64
    assert package(monkeypatch, "list") == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("package", "market", "0.1.0", str(listed["size"])))
    assert package(monkeypatch, "unload", "market") == 0
    assert capsys.readouterr().out == "package 'market' is no longer published\n"
    assert package(monkeypatch, "list", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == []
    assert package(monkeypatch, "list", "-o", "json", "--tenant", "acme") == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_what_cannot_be_imported_is_not_published(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-10: no node could load it; the problems are those of `check`, unless --no-import is given."""
    assert package(monkeypatch, "upload", "market") == 0
    code = (here / "market" / "market.py").read_text()
    (here / "market" / "market.py").write_text(f"import a_library_of_the_nodes\n{code}")
    set_version(here, "0.2.0")
    assert package(monkeypatch, "build", "market") == 0
    capsys.readouterr()
    for path, place in (("market", "market/market.py:1: "), ("market-0.2.0.tidemill", "market.py:1: ")):
        assert package(monkeypatch, "check", path) == 1
        said = capsys.readouterr().err
        assert package(monkeypatch, "upload", path) == 1
        assert capsys.readouterr() == ("", said)
        assert said.startswith(f"{place}importing 'market' failed: ModuleNotFoundError: No module named 'a_library")
    assert package(monkeypatch, "list", "-o", "json") == 0
    assert [one["published"] for one in json.loads(capsys.readouterr().out)] == ["0.1.0"]
    assert package(monkeypatch, "upload", "market", "--no-import") == 0
    assert capsys.readouterr().out.startswith("market 0.2.0 is published")


def test_what_cannot_run_anywhere_is_not_tried(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-10: the missing requirement is reported, not the import that fails because of it."""
    (here / "market" / "market.py").write_text("1 / 0\n")
    with (here / "market" / "package.toml").open() as file:
        manifest = file.read().replace('requires-tidemill = ">=', 'requires-tidemill = ">=99, >=')
    (here / "market" / "package.toml").write_text(manifest)
    assert package(monkeypatch, "upload", "market") == 1
    assert "cannot run here: it requires Tidemill >=99" in capsys.readouterr().err


def test_versions_go_forward(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """P-9: no rollback without --allow-downgrade, and a version is one set of files."""
    assert package(monkeypatch, "upload", "market") == 0
    assert package(monkeypatch, "upload", "market") == 0
    with (here / "market" / "market.py").open("a") as file:
        file.write("# more\n")
    capsys.readouterr()
    assert package(monkeypatch, "upload", "market") == 2
    said = "package 'market' 0.1.0 is published already, with other files; give the new one a new version\n"
    assert capsys.readouterr().err == said
    set_version(here, "0.2.0")
    assert package(monkeypatch, "upload", "market") == 0
    set_version(here, "0.1.1")
    capsys.readouterr()
    assert package(monkeypatch, "upload", "market") == 2
    assert "0.1.1 is older than 0.2.0, the recorded version; --allow-downgrade allows it" in capsys.readouterr().err
    assert package(monkeypatch, "upload", "market", "--allow-downgrade") == 0
    assert capsys.readouterr().out.startswith("market 0.1.1 is published")


def test_keys_are_trusted_and_no_longer(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-9: by tenant; where signatures are required, nothing else is let in."""
    known = PublicKey.parse((here / "alice.pub").read_text()).id
    assert package(monkeypatch, "keys") == 0
    said = "no keys are trusted; trust one with `tidemill package trust`\nsignatures are not required"
    assert capsys.readouterr().out.startswith(said)
    monkeypatch.setenv("TIDEMILL_REQUIRE_SIGNATURES", "true")
    assert package(monkeypatch, "upload", "market") == 1
    assert capsys.readouterr().err == "market is not signed\n"
    assert package(monkeypatch, "sign", "market", "--key", "alice.pem") == 0
    assert package(monkeypatch, "upload", "market") == 1
    assert "which is not trusted; trusted: none" in capsys.readouterr().err
    assert package(monkeypatch, "trust", "alice.pub") == 0
    assert capsys.readouterr().out == f"key 'alice' ({known}) is trusted for tenant 'public'\n"
    assert package(monkeypatch, "upload", "market") == 0
    assert package(monkeypatch, "upload", "market", "--tenant", "acme") == 1
    capsys.readouterr()
    assert package(monkeypatch, "keys", "-o", "json") == 0
    (key,) = json.loads(capsys.readouterr().out)
    assert (key["id"], key["name"], key["for"]) == (known, "alice", "public")
    assert package(monkeypatch, "untrust", known[:6]) == 0
    assert capsys.readouterr().out == f"key 'alice' ({known}) is no longer trusted for tenant 'public'\n"
    assert package(monkeypatch, "untrust", known) == 2
    assert f"tenant 'public' trusts no key '{known}'" in capsys.readouterr().err


def test_keys_of_a_file_count_for_every_tenant(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file that the settings name."""
    monkeypatch.setenv("TIDEMILL_REQUIRE_SIGNATURES", "yes")
    monkeypatch.setenv("TIDEMILL_TRUSTED_KEYS", "alice.pub")
    assert package(monkeypatch, "sign", "market", "--key", "alice.pem") == 0
    assert package(monkeypatch, "upload", "market", "--tenant", "acme") == 0
    capsys.readouterr()
    assert package(monkeypatch, "keys", "--tenant", "acme") == 0
    printed = capsys.readouterr().out
    assert "every tenant" in printed
    assert printed.endswith("signatures are required (TIDEMILL_REQUIRE_SIGNATURES)\n")
    monkeypatch.setenv("TIDEMILL_TRUSTED_KEYS", "nowhere.pub")
    assert package(monkeypatch, "upload", "market") == 2
    assert capsys.readouterr().err == f"there is no file {here / 'nowhere.pub'}\n"


@pytest.mark.parametrize("tenant", ["", "a/b c", "a\nb", "a" * 300])
def test_a_tenant_that_no_node_could_have_is_refused(
    here: Path, tenant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by the node itself; the command was called wrongly, and nothing is written."""
    for command in (["upload", "market"], ["trust", "alice.pub"], ["list"], ["keys"], ["unload", "market"]):
        assert package(monkeypatch, *command, "--tenant", tenant) == 2
        assert "a tenant's name is" in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert package(monkeypatch, "list") == 0
    assert capsys.readouterr().out.startswith("no packages")
    assert (here / "tidemill.db").exists()


def test_settings_that_are_wrong_say_nothing_about_a_package(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """2: the command could not do what it was asked."""
    monkeypatch.setenv("TIDEMILL_REQUIRE_SIGNATURES", "maybe")
    for command in (["keys"], ["upload", str(here / "market")], ["list"]):
        assert package(monkeypatch, *command) == 2
        assert capsys.readouterr().err.startswith("settings: require_signatures: 'maybe' is neither true nor false")


def test_a_signature_of_other_files_is_reported(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where signatures are not required: its nodes would refuse it as soon as they trust the key."""
    assert package(monkeypatch, "sign", "market", "--key", "alice.pem") == 0
    set_version(here, "0.2.0")
    assert package(monkeypatch, "upload", "market") == 1
    assert "'package.toml' changed since it was signed: sign it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["upload", "nowhere"], 2, "there is no file nowhere"),
        (["upload", "market", "--store", "sqlite:///none.db"], 2, "there is no file none.db: check the address"),
        (["upload", "market", "--store", "memory:"], 2, "a store in memory ends with its process"),
        (["upload", "bad.tidemill"], 1, "bad.tidemill: it is not a zip file"),
        (["upload", "market", "--tenant", "beta"], 2, "there is no tenant 'beta'"),
        (["list", "--store", "sqlite:///none.db"], 2, "or create it with `tidemill db upgrade`"),
        (["unload", "markt"], 2, "package 'markt' is neither published nor loaded (did you mean 'market'?)"),
        (["trust", "none.pub"], 2, "there is no file none.pub"),
        (["trust", "bad.tidemill"], 2, "is not a public key: it is one line"),
        (["trust", "empty.pub"], 2, "empty.pub holds no public key"),
        (["untrust", ""], 2, "tenant 'public' trusts no key ''"),
    ],
)
def test_a_mistake_ends_with_one_clear_line(
    here: Path,
    arguments: list[str],
    code: int,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1 for a package that is bad, 2 if nothing was done for another reason."""
    (here / "bad.tidemill").write_text("no archive")
    (here / "empty.pub").write_text("# nothing\n")
    assert package(monkeypatch, "upload", "market") == 0
    capsys.readouterr()
    assert package(monkeypatch, *arguments) == code
    out, err = capsys.readouterr()
    assert complaint in err
    assert "Traceback" not in err
    assert out == ""


async def test_a_check_reads_the_state_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D9: in the process that imports the package; a field that no class has fails the check."""
    monkeypatch.chdir(tmp_path)
    folder = write_package(tmp_path / "shop", SHOP.format(field="spent"))
    async with tm.Node(store=STORE, load=[folder]) as node:
        for key in ("ann", "bob"):
            await node.push("total", {"customer": key, "amount": 5.0})
    check = ("check", "shop", "--state", "--store", STORE)
    assert await asyncio.to_thread(package, monkeypatch, *check) == 0
    assert "it reads all 4 kept values" in capsys.readouterr().out
    write_package(folder, SHOP.format(field="revenue"))
    assert await asyncio.to_thread(package, monkeypatch, *check) == 1
    assert "its running state has fields that its class does not have" in capsys.readouterr().err


SHOP = """\
import tidemill as tm

class Spend(tm.Boundary):
    customer: str
    amount: float

class Total(tm.Boundary):
    {field}: float = 0.0

@tm.passthrough(state=Total)
def total(event: Spend, state: Total) -> Total:
    return Total(state.{field} + event.amount)

shop = tm.Reactor("shop", [total], key="customer", partitions=2)
"""
