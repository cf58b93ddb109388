"""Tenants, keys, accounts, variables, secrets and the audit log, directly on a store."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.command_line import run
from tidemill.access.keys import key_id_of


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store that does not exist yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    address = f"sqlite:///{tmp_path}/new.db"
    monkeypatch.setenv("TIDEMILL_STORE", address)
    return address


def answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command, and return what it answers as JSON."""
    capsys.readouterr()
    assert run(monkeypatch, *arguments, "-o", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_first_key_is_made_before_the_first_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """http.md: `key create` works on a store directly; the key alone is on standard output."""
    assert run(monkeypatch, "key", "create", "--role", "admin") == 0
    token = capsys.readouterr().out.strip()
    id_ = key_id_of(token)
    (listed,) = answered(monkeypatch, capsys, "key", "list")
    assert (listed["id"], listed["tenant"], listed["role"], listed["expires_at"]) == (id_, "public", "admin", None)
    assert "key" not in listed
    assert run(monkeypatch, "key", "revoke", str(id_)) == 0
    assert answered(monkeypatch, capsys, "key", "list")[0]["revoked_at"]
    assert run(monkeypatch, "key", "revoke", "nothing") == 2
    assert run(monkeypatch, "key", "list") == 0
    assert token not in capsys.readouterr().out


def test_keys_of_a_tenant_expire_and_are_restricted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """http.md: --tenant, --expires and --only."""
    assert run(monkeypatch, "key", "create", "--role", "write", "--tenant", "acme") == 2
    assert run(monkeypatch, "tenant", "create", "acme") == 0
    limited = ["--expires", "90d", "--only", "accumulators:orderbook,reactors:market", "--label", "feed"]
    made = answered(monkeypatch, capsys, "key", "create", "--role", "write", "--tenant", "acme", *limited)
    assert made["key"].startswith("tm_")
    assert (made["tenant"], made["only"]) == ("acme", ["accumulators:orderbook", "reactors:market"])
    assert made["expires_at"] is not None
    assert answered(monkeypatch, capsys, "key", "list") == []
    assert len(answered(monkeypatch, capsys, "key", "list", "--tenant", "acme")) == 1
    for wrong in (["--expires", "soon"], ["--only", "things:x"]):
        assert run(monkeypatch, "key", "create", "--role", "read", *wrong) == 2


def test_tenants_are_created_listed_and_deleted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-5: names are valid, unique, and gone after a deletion."""
    assert answered(monkeypatch, capsys, "tenant", "create", "acme")["name"] == "acme"
    assert run(monkeypatch, "tenant", "create", "acme") == 2
    assert [one["name"] for one in answered(monkeypatch, capsys, "tenant", "list")] == ["acme", "public"]
    assert run(monkeypatch, "tenant", "delete", "acme") == 0
    assert run(monkeypatch, "tenant", "delete", "public") == 2
    assert [one["name"] for one in answered(monkeypatch, capsys, "tenant", "list")] == ["public"]


def test_secrets_come_from_standard_input_and_are_never_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """S-6: a value is no argument of a command, which other users of the machine could see."""
    assert run(monkeypatch, "tenant", "create", "acme") == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("canary-value\n"))
    assert answered(monkeypatch, capsys, "secret", "set", "token")["version"] == 1
    assert run(monkeypatch, "secret", "list") == 0
    assert "token" in capsys.readouterr().out
    assert [one["name"] for one in answered(monkeypatch, capsys, "secret", "list")] == ["token"]
    assert b"canary-value" not in b"".join(file.read_bytes() for file in tmp_path.glob("new.db*"))
    assert answered(monkeypatch, capsys, "secret", "rotate") == {"rotated": 0}
    assert run(monkeypatch, "secret", "delete", "token") == 0
    assert run(monkeypatch, "secret", "delete", "token") == 2


def test_variables_are_json_or_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A number is a number, a word is a text."""
    assert run(monkeypatch, "tenant", "create", "acme") == 0
    for value in ("eu", "3", '{"a": [1]}'):
        assert run(monkeypatch, "variable", "set", "region", value) == 0
        capsys.readouterr()
        assert run(monkeypatch, "variable", "show", "region") == 0
        shown = capsys.readouterr().out.strip()
        assert shown == "eu" if value == "eu" else json.loads(shown) == json.loads(value)
    assert answered(monkeypatch, capsys, "variable", "list")[0]["value"] == {"a": [1]}
    assert run(monkeypatch, "variable", "show", "regin") == 2
    assert run(monkeypatch, "variable", "delete", "region") == 0


def test_accounts_have_a_password_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-4: accounts are created, listed without their password, and deleted; the audit log has it all."""
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    made = answered(monkeypatch, capsys, "account", "create", "ada", "--role", "admin")
    assert (made["name"], made["role"]) == ("ada", "admin")
    (listed,) = answered(monkeypatch, capsys, "account", "list")
    assert "correct horse" not in json.dumps(listed)
    assert run(monkeypatch, "account", "list") == 0
    assert run(monkeypatch, "account", "delete", "ada") == 0
    entries = answered(monkeypatch, capsys, "audit")
    assert [one["action"] for one in entries] == ["account.delete", "account.create"]
    assert answered(monkeypatch, capsys, "audit", "--action", "account.create", "--limit", "1") == entries[1:]
    assert run(monkeypatch, "audit") == 0
    assert "account.delete" in capsys.readouterr().out
