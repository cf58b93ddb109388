"""`tidemill package` as an author and an operator would use it."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.command_line import run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def package(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a verb of `tidemill package`."""
    return run(monkeypatch, "package", *arguments)


def test_from_nothing_to_a_verified_archive(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-9: every verb once, and what it says."""
    assert package(monkeypatch, "new", "market") == 0
    files = "market/package.toml\nmarket/market.py\nmarket/test_market.py\n"
    assert capsys.readouterr().out == f"{files}run it, and reload it on save:  tidemill dev market\n"
    assert run(monkeypatch, "run", "market") == 2
    assert capsys.readouterr().err == "market is a folder: name a file that ends in .py, such as market/market.py\n"
    assert package(monkeypatch, "check", "market") == 0
    assert capsys.readouterr().out.startswith("market 0.1.0: no problems found (2 files, 1,")
    assert package(monkeypatch, "build", "market") == 0
    assert capsys.readouterr().out.startswith("market-0.1.0.tidemill: market 0.1.0, 2 files, 1,")
    assert package(monkeypatch, "key", "alice") == 0
    assert capsys.readouterr().out.startswith("alice.pem is the private key: keep it secret\nalice.pub is the public")
    assert stat.S_IMODE((here / "alice.pem").stat().st_mode) == 0o600
    archive = "market-0.1.0.tidemill"
    assert package(monkeypatch, "verify", archive, "--key", "alice.pub") == 1
    assert capsys.readouterr().err == "market-0.1.0.tidemill is not signed\n"
    assert package(monkeypatch, "sign", archive, "--key", "alice.pem", "--not-after", "2999-12-31") == 0
    assert ": market 0.1.0 is signed with key 'alice' (" in capsys.readouterr().out
    assert package(monkeypatch, "verify", archive, "--key", "alice.pub") == 0
    assert capsys.readouterr().out.rstrip().endswith("), until 2999-12-31 23:59:59 UTC")
    assert package(monkeypatch, "check", archive) == 0
    assert capsys.readouterr().out.endswith(" bytes, signed)\n")
    assert sorted(os.listdir(here)) == ["alice.pem", "alice.pub", "market", archive]


def test_the_skeleton_works(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own test passes, and its code is as tidy as ours."""
    assert package(monkeypatch, "new", "shop", "--folder", "elsewhere/shop") == 0
    folder = here / "elsewhere" / "shop"
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    tested = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,I,B", "--line-length", "120", "."]
    assert subprocess.run(ruff, cwd=folder, capture_output=True, timeout=60, check=False).returncode == 0


def test_nothing_is_written_over(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new package or key never takes the place of another."""
    assert package(monkeypatch, "new", "market") == 0
    assert package(monkeypatch, "key", "alice") == 0
    key = (here / "alice.pem").read_bytes()
    assert package(monkeypatch, "new", "market") == 2
    assert package(monkeypatch, "key", "alice") == 2
    assert "already exists" in capsys.readouterr().err
    (here / "alice.pub").unlink()
    assert package(monkeypatch, "key", "alice") == 2
    assert (here / "alice.pem").read_bytes() == key


def test_every_problem_of_a_manifest_is_reported(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line each, that editors can open."""
    (here / "package.toml").write_text("[package]\nname = 'json'\nversoin = '1.0.0'\n")
    assert package(monkeypatch, "check", ".") == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line[:15] for line in lines] == ["package.toml:1:", "package.toml:2:", "package.toml:3:"]
    assert "did you mean 'version'?" in lines[2]
    assert package(monkeypatch, "build", ".", "-o", "a.tidemill") == 1
    assert os.listdir(here) == ["package.toml"]


def test_tampering_is_reported(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A signed folder that was changed is neither verified, nor sound, nor built; signing again repairs it."""
    for command in (["new", "market"], ["key", "alice"], ["sign", "market", "--key", "alice.pem", "--tenant", "acme"]):
        assert package(monkeypatch, *command) == 0
    assert package(monkeypatch, "verify", "market", "--key", "alice.pub", "--tenant", "acme") == 0
    assert ", for tenant 'acme' only" in capsys.readouterr().out
    assert package(monkeypatch, "verify", "market", "--key", "alice.pub", "--tenant", "other") == 1
    (here / "market" / "market.py").write_text("evil = True\n")
    capsys.readouterr()
    assert package(monkeypatch, "verify", "market", "--key", "alice.pub") == 1
    assert "signed: 'market.py' was changed" in capsys.readouterr().err
    for verb in ("check", "build"):
        assert package(monkeypatch, verb, "market") == 1
        assert "'market.py' changed since it was signed: sign it again" in capsys.readouterr().err
    assert package(monkeypatch, "sign", "market", "--key", "alice.pem") == 0
    assert package(monkeypatch, "build", "market") == 0
    assert package(monkeypatch, "key", "bob") == 0
    assert package(monkeypatch, "verify", "market-0.1.0.tidemill", "--key", "bob.pub") == 1
    assert package(monkeypatch, "verify", "market-0.1.0.tidemill", "--key", "bob.pub", "--key", "alice.pub") == 0


def test_a_package_is_shown(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """For people, and for programs."""
    for command in (["new", "market"], ["key", "alice"], ["sign", "market", "--key", "alice.pem"]):
        assert package(monkeypatch, *command) == 0
    capsys.readouterr()
    assert package(monkeypatch, "show", "market") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("name: market\nversion: 0.1.0\nmodules: market\n")
    assert "tasks: market_report.publish\nsignature: with key '" in printed
    assert package(monkeypatch, "show", "market", "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["file"] for one in shown["files"]] == ["market.py", "package.toml"]
    assert shown["tasks"]["market_report.publish"]["timeout"] == 60.0
    assert shown["signature"]["files"] == {one["file"]: one["sha256"] for one in shown["files"]}


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["check", "nowhere"], 2, "there is no file nowhere"),
        (["build", "nowhere"], 2, "there is no folder nowhere"),
        (["check", "bad.tidemill"], 1, "bad.tidemill: it is not a zip file, is cut off, or something follows its end"),
        (["check", "future"], 1, "package 'future' 0.1.0 cannot run here: it requires Tidemill >=99"),
        (["new", "../market"], 2, "a name has small letters, digits and '_'"),
        (["new", "market"], 2, "test_market.py are there already: name another folder with --folder"),
        (["check", "market/market.py"], 2, "market/market.py is a file of a package: name its folder, market"),
        (["check", "market/package.toml"], 2, "market/package.toml is a file of a package: name its folder, market"),
        (["new", "json"], 2, "'json' would hide a module of the standard library"),
        (["key", "../alice"], 2, "cannot be the name of a key"),
        (["verify", "market", "--key", "none.pub"], 2, "there is no file none.pub"),
        (["verify", "market", "--key", "bad.tidemill"], 2, "is not a public key: it is one line"),
        (["sign", "market", "--key", "bad.tidemill"], 2, "bad.tidemill can be read by others"),
        (["sign", "market", "--key", "k.pub"], 2, "k.pub is a public key, which only verifies: sign with the private"),
        (["sign", "market", "--key", "k.pem", "--not-after", "soon"], 2, "--not-after: 'soon' is not a time such as"),
        (
            ["sign", "market", "--key", "k.pem", "--not-after", "2020-01-01"],
            2,
            "--not-after: 2020-01-01 is in the past",
        ),
        (["sign", "market", "--key", "k.pem", "--tenant", ""], 2, "a tenant's name is a text of 1 to 200 characters"),
        (["sign", "market", "--key", "k.pem", "--tenant", "a/b"], 2, "and without '/', not 'a/b'"),
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
    """1 for a package that is bad, 2 if nothing can be said about one."""
    for command in (["new", "market"], ["new", "future"], ["key", "k"]):
        assert package(monkeypatch, *command) == 0
    (here / "bad.tidemill").write_text("no archive")
    (here / "bad.tidemill").chmod(0o644)
    manifest = here / "future" / "package.toml"
    manifest.write_text(manifest.read_text().replace('requires-tidemill = ">=', 'requires-tidemill = ">=99, >='))
    capsys.readouterr()
    assert package(monkeypatch, *arguments) == code
    out, err = capsys.readouterr()
    assert complaint in err
    assert "Traceback" not in err
    assert out == ""


def test_looking_at_a_package_imports_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any contents."""
    assert package(monkeypatch, "new", "market") == 0
    (here / "market" / "market.py").write_text("raise SystemExit('imported')\n")
    for command in (["check", "--no-import", "market"], ["show", "market"], ["build", "market"]):
        assert package(monkeypatch, *command) == 0
    assert "market" not in sys.modules


def test_what_a_package_says_cannot_pass_for_the_verdict(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-10: neither by what it raises, nor by its manifest."""
    assert package(monkeypatch, "new", "market") == 0
    code = 'raise ValueError("\\x1b]0;owned\\x07 \\x1b[2J\\nfake: market 0.1.0 is sound")\n'
    (here / "market" / "market.py").write_text(code)
    capsys.readouterr()
    assert package(monkeypatch, "check", "market") == 1
    said = capsys.readouterr().err
    assert said == (
        "market/market.py:1: importing 'market' failed: ValueError: ·]0;owned· ·[2J\n    fake: market 0.1.0 is sound\n"
    )
    with (here / "market" / "package.toml").open("a") as file:
        file.write('[package."\\u001b[2J\\nfake"]\nx = 1\n')
    assert package(monkeypatch, "check", "market") == 1
    lines = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() and line.startswith(("market/", "package.toml", "    ")) for line in lines)


def test_a_check_imports_a_package_in_a_process_of_its_own(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-7, P-10: a failure there is reported as file:line, and nothing is imported in this process."""
    assert package(monkeypatch, "new", "market") == 0
    (here / "market" / "market.py").write_text("import beside\n")
    (here / "market" / "beside.py").write_text("")
    capsys.readouterr()
    assert package(monkeypatch, "check", "market") == 1
    out, err = capsys.readouterr()
    assert err.startswith("market/market.py:1: importing 'market' failed: ModuleNotFoundError: No module named 'bes")
    assert out == ""
    assert package(monkeypatch, "build", "market", "-o", "market.tidemill") == 0
    assert package(monkeypatch, "check", "market.tidemill") == 1
    assert capsys.readouterr().err.startswith("market.py:1: importing 'market' failed")
    assert not {"market", "beside"} & sys.modules.keys()
    assert sorted(os.listdir(here / "market")) == ["beside.py", "market.py", "package.toml", "test_market.py"]


def test_a_check_says_what_a_package_only_misses_while_it_is_tried(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """P-7, P-10: a module that is not declared, and a secret that is hidden from unchecked code."""
    assert package(monkeypatch, "new", "market") == 0
    module = here / "market" / "market.py"
    code = module.read_text()
    (here / "market" / "lib.py").write_text("")
    module.write_text(f"import lib\n{code}")
    assert package(monkeypatch, "check", "market") == 1
    error = capsys.readouterr().err
    assert error.startswith("market/market.py:1: importing 'market' failed: ModuleNotFoundError: No module named 'lib'")
    assert error.endswith('add "lib" to modules in package.toml\n')
    monkeypatch.setenv("SHOP_KEY", "secret")
    module.write_text(f'import os\nos.environ["SHOP_KEY"]\n{code}')
    assert package(monkeypatch, "check", "market") == 1
    assert "the environment has SHOP_KEY, but packages are probed without it" in capsys.readouterr().err


def test_a_check_is_json_for_programs(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """server.md, `-o json` everywhere: as the checks of graphs and workflows answer."""
    assert package(monkeypatch, "new", "market") == 0
    capsys.readouterr()
    assert package(monkeypatch, "check", "market", "-o", "json", "--no-import") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], found["name"], found["version"], found["signed"]) == (True, "market", "0.1.0", False)
    (here / "market" / "package.toml").write_text("name\n")
    assert package(monkeypatch, "check", "market", "-o", "json") == 1
    out, err = capsys.readouterr()
    (problem,) = json.loads(out)["problems"]
    assert (problem["file"], problem["line"], err) == ("market/package.toml", 1, "")
