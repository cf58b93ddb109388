"""Variables and secrets that a node is given, and secrets from the environment, from files and from Vault."""

from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.access.vault_server import TOKEN, vault_server
from tests.service.workflows.secretive import reading
from tidemill.access.principal import Principal, Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.kernel.errors import NotFoundError

CANARY = "canary-77aa-do-not-leak"
EXECUTORS = ["in_process", "subprocess"]
ACME = Principal(tenant="acme", role=Role.ADMIN, actor="key:1")

region = tm.Workflow("region")


@region.task
def where(ctx: tm.Context) -> str:
    return f"{ctx.variable('region')} {ctx.secret('password')}"


async def reveal(name: str, tenant: str = "public", **options: Any) -> str:
    """Return a secret as author code of a node reads it."""
    async with tm.Node(**options) as node:
        return await node.access.secrets.reveal(tenant, name)


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_tasks_read_the_variables_and_secrets_that_their_node_is_given(executor: str) -> None:
    """S-6: of the node's own tenant."""
    given = {"variables": {"region": {"name": "eu"}, "nothing": None}, "secrets": {"password": CANARY}}
    async with tm.Node(load=[reading], executor=executor, tenant="acme", **given) as node:
        await node.access.secrets.set(ACME, "password", "that of the store comes later")
        result = await (await node.start("reading")).wait(timeout=60)
    assert result.outputs["read_both"] == [{"name": "eu"}, True, len(CANARY)]
    assert result.outputs["read_later"] == [{"name": "eu"}, len(CANARY)]


async def test_a_test_node_takes_variables_and_secrets_and_keeps_them_over_a_crash() -> None:
    """S-6: api.md, `tm.testing.node`."""
    async with tm.testing.node(load=[region], variables={"region": "eu"}, secrets={"password": "x"}) as node:
        assert (await (await node.start("region")).wait()).outputs == {"where": "eu x"}
        node = await node.crash()
        assert (await (await node.start("region")).wait()).outputs == {"where": "eu x"}


def test_a_workflow_in_a_script_is_given_variables_and_secrets() -> None:
    """api.md: `given` has no params, so that no name of a param can collide."""
    result = region.given(variables={"region": "eu"}, secrets={"password": "x"}).run(secrets=1, variables=2)
    assert result.outputs == {"where": "eu x"}


async def test_another_tenant_reads_nothing_that_a_node_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-5: arguments, environment and files are those of the node's own tenant; others have a folder."""
    monkeypatch.setenv("TIDEMILL_SECRET_FROM_ENVIRONMENT", CANARY)
    (tmp_path / "from_file").write_text(CANARY)
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "own").write_text("of acme\n")
    settings = {"secrets_dir": tmp_path}
    async with tm.Node(secrets={"given": CANARY}, variables={"v": 1}, settings=settings) as node:
        for name in ("given", "from_environment", "from_file"):
            assert await node.access.secrets.reveal("public", name) == CANARY
            with pytest.raises(NotFoundError):
                await node.access.secrets.reveal("acme", name)
        assert await node.access.secrets.reveal("acme", "own") == "of acme"
        with pytest.raises(NotFoundError):
            await node.access.variables.read("acme", "v")


async def test_secrets_come_from_the_nearest_source_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-6: arguments, environment, files, the store, and then Vault."""
    (tmp_path / "bank-token").write_text("file")
    async with vault_server() as vault:
        vault.data["/v1/secret/data/tidemill/public/bank-token"] = {"value": "vault"}
        settings = {"secrets_dir": tmp_path, "vault_address": vault.url, "vault_token": TOKEN}
        options: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/tidemill.db", "settings": settings}
        assert await reveal("bank-token", **options, secrets={}) == "file"
        (tmp_path / "bank-token").unlink()
        assert await reveal("bank-token", **options) == "vault"
        async with tm.Node(**options) as node:
            await node.access.secrets.set(LOCAL_PRINCIPAL, "bank-token", "store")
        assert await reveal("bank-token", **options) == "store"
        (tmp_path / "bank-token").write_text("file")
        monkeypatch.setenv("TIDEMILL_SECRET_BANK_TOKEN", "environment")
        assert await reveal("bank-token", **options) == "environment"
        assert await reveal("bank-token", **options, secrets={"bank-token": "given"}) == "given"
        assert len(vault.requests) == 1


async def test_each_source_is_masked_in_what_a_task_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-6: wherever a secret comes from."""
    talk = tm.Workflow("talk")

    @talk.task
    def log_all(ctx: tm.Context) -> None:
        for name in ("given", "from_environment", "from_file", "from_vault"):
            ctx.log.info("%s is %s", name, ctx.secret(name))

    monkeypatch.setenv("TIDEMILL_SECRET_FROM_ENVIRONMENT", f"{CANARY}-1")
    (tmp_path / "from_file").write_text(f"{CANARY}-2\n")
    async with vault_server() as vault:
        vault.data["/v1/kv/data/public/from_vault"] = {"value": f"{CANARY}-3"}
        settings = {
            "secrets_dir": tmp_path,
            "vault_address": vault.url,
            "vault_token": TOKEN,
            "vault_path": "kv",
        }
        async with tm.Node(load=[talk], settings=settings, secrets={"given": CANARY}) as node:
            run = await node.start(talk)
            assert (await run.wait(timeout=60)).ok
            lines = [line.message async for line in run.logs("log_all")]
    assert lines == [f"{name} is ***" for name in ("given", "from_environment", "from_file", "from_vault")]


async def test_a_source_of_a_program_is_asked_for_each_secret() -> None:
    """api.md, tm.SecretSource: such as one of a cloud."""

    class Cloud:
        async def read(self, tenant: str, name: str) -> str | None:
            return f"{tenant}/{name}" if name == "password" else None

    assert isinstance(Cloud(), tm.SecretSource)
    assert await reveal("password", "acme", secrets=Cloud()) == "acme/password"
    with pytest.raises(NotFoundError, match="there is no secret 'other'"):
        await reveal("other", secrets=Cloud())


async def test_a_vault_that_refuses_or_does_not_answer_says_so_without_its_token() -> None:
    """S-6: the error names the address, the status and the secret."""
    async with vault_server() as vault:
        vault.data["/v1/secret/data/tidemill/public/wrong"] = {"password": "x"}
        settings = {"vault_address": vault.url, "vault_token": TOKEN}
        with pytest.raises(tm.OperationError, match="secret 'wrong' has no text in the field 'value' in Vault"):
            await reveal("wrong", settings=settings)
        with pytest.raises(tm.OperationError, match="answers 403 for secret 'x'"):
            await reveal("x", settings=settings | {"vault_token": "another"})
        assert TOKEN not in repr(tm.Settings(**settings))
        url = vault.url
    with pytest.raises(tm.OperationError, match=f"Vault at {url} cannot be asked for secret 'x'"):
        await reveal("x", settings={"vault_address": url, "vault_token": TOKEN})
    with pytest.raises(tm.DefinitionError, match="vault_address needs vault_token"):
        tm.Node(settings={"vault_address": url})


async def test_no_name_of_a_secret_leads_out_of_the_folder_or_to_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-6: `TIDEMILL_SECRET_KEYS` holds the master keys."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "outside").write_text(CANARY)
    monkeypatch.setenv("TIDEMILL_SECRET_KEYS", "2026:" + "A" * 43 + "=")
    monkeypatch.setenv("TIDEMILL_SECRET_KEYS_FILE", "")
    async with tm.Node(settings={"secrets_dir": tmp_path / "secrets"}) as node:
        for tenant, name in (("..", "outside"), ("public", ".."), ("public", "keys"), ("public", "keys_file")):
            with pytest.raises(NotFoundError):
                await node.access.secrets.reveal(tenant, name)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"secrets": {"a/b": "x"}}, "secrets= takes names"),
        ({"secrets": {"a": ""}}, "secret 'a' is a text that is not empty"),
        ({"secrets": "token"}, "secrets= takes values by name"),
        ({"variables": {"a": object()}}, "variable 'a' cannot be expressed in JSON"),
        ({"variables": ["a"]}, "variables= takes values by name"),
    ],
)
def test_values_that_cannot_be_are_definition_errors(given: dict[str, Any], message: str) -> None:
    """What a node is given is checked when it is made, and no message shows a secret."""
    with pytest.raises(tm.DefinitionError, match=message):
        tm.Node(**given)
