"""The Compose file: its settings exist, its passwords are asked for, and its database is as the documentation says."""

import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml

from tests.architecture.sources import ROOT
from tests.postgres import PostgresServer
from tests.unit.cli.command_line import run
from tidemill.cli.main import COMMANDS
from tidemill.kernel.settings import Settings
from tidemill.storage.postgres.store import PostgresStore

VARIABLE = re.compile(r"\$\{(?P<name>\w+):\?(?P<message>[^}]+)\}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The exported files."""
    assert run(monkeypatch, "export", "compose", "--to", str(tmp_path)) == 0
    return tmp_path


def test_the_files_refer_to_each_other(folder: Path) -> None:
    """S-Ops: the image is built from the Dockerfile next to it, and the script of the database is there."""
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert sorted(services) == ["database", "server", "worker"]
    assert (folder / services["server"]["build"] / "Dockerfile").is_file()
    scripts = [one.split(":")[0] for one in services["database"]["volumes"] if one.startswith("./")]
    assert scripts
    assert all((folder / one).is_file() for one in scripts)
    assert services["server"]["ports"] == ["127.0.0.1:8080:8080"]
    for one in (services["server"], services["worker"]):
        assert one["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert services["worker"]["command"][0] in COMMANDS


def test_settings_exist_and_no_password_has_a_default(folder: Path) -> None:
    """S-Ops: each is made by the first lines of the file, which the page repeats."""
    text = (folder / "compose.yaml").read_text()
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    for one in (services["server"], services["worker"]):
        names = {name.removeprefix("TIDEMILL_").lower() for name in one["environment"]}
        assert names <= set(Settings.__struct_fields__)
        assert all(VARIABLE.search(value) for value in one["environment"].values())
    head = text.partition("\nx-tidemill")[0]
    page = (ROOT / "docs" / "how-to" / "deploy-to-production.md").read_text(encoding="utf-8")
    asked = {one["name"] for one in VARIABLE.finditer(text)}
    assert asked == set(re.findall(r"([A-Z_]+)=(?:2026:)?%s", head)) == set(re.findall(r"([A-Z_]+)=(?:2026:)?%s", page))


async def test_the_role_of_the_database_is_not_a_superuser_and_owns_the_tables(
    folder: Path, postgres: PostgresServer
) -> None:
    """S-6: as psql would run the script; row-level security holds for such a role."""
    script = (folder / "database" / "create.sql").read_text()
    statements = re.sub(r"^(--|\\).*\n", "", script, flags=re.MULTILINE).replace(":'password'", "'secret'")
    for statement in statements.replace("tidemill", "composed").strip().splitlines():
        await postgres.execute(statement)
    url = postgres.url("composed").replace("postgres@", "composed:secret@")
    store = PostgresStore(url)
    await store.open()
    await store.close()
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SHOW is_superuser") == "off"
    assert await connection.fetchval("SELECT count(*) FROM tidemill.tenants") == 0  # no tenant was named
    await connection.close()
