"""Every operation through four doors: a node, a bare store, HTTP, and its command with a server and with a store.

The answers and the messages of errors are the same everywhere (rules 5 and 6 of operations).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.contract.api.doors import NO_COMMAND, RUNNING_DOORS, STORE_DOORS, CommandDoor, MakeDoor, Visitor
from tests.contract.api.scenarios import LATER, SCENARIOS, Scenario
from tests.service.server.serving_node import served
from tidemill.api import import_errors, overview, pools, system
from tidemill.api.operation import Operation
from tidemill.api.table import NOUNS, operations_of
from tidemill.server.authentication import CredentialAuthentication

REFERENCE = "node"
OF_SERVERS = (
    overview.get_overview,
    system.get_system,
    system.get_system_metrics,
    import_errors.list_import_errors,
)
"""Operations that only a server answers."""
VARYING = {"request_id"}
"""Fields that only a request over HTTP has."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without profiles, and a master key for secrets."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TIDEMILL_SERVER", "TIDEMILL_KEY", "TIDEMILL_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIDEMILL_SECRET_KEYS", "A" * 43 + "=")
    return tmp_path


@pytest.fixture
def visitor(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Visitor:
    """Whoever goes through the doors."""
    return Visitor(home, monkeypatch, capsys)


@pytest.mark.parametrize("noun", SCENARIOS)
async def test_every_door_answers_alike(noun: str, visitor: Visitor) -> None:
    """Step by step: the same answers, and the same messages of errors."""
    scenario = SCENARIOS[noun]
    visitor = visitor._replace(load=scenario.load)
    expected = await _play(scenario, RUNNING_DOORS[REFERENCE], visitor)
    takes_fields = any(step.operation.fields for step in scenario.steps)
    has_error = any("error" in one for one in expected if isinstance(one, dict))
    assert has_error or not takes_fields, "a scenario has a request that fails"
    for name, door in {**RUNNING_DOORS, **({} if scenario.needs_node else STORE_DOORS)}.items():
        answers = await _play(scenario, door, visitor)
        for step, answer, wanted in zip(scenario.steps, answers, expected, strict=True):
            if step.needs_node and name in STORE_DOORS:
                assert "running server" in answer["error"]
                continue
            assert answer in (wanted, NO_COMMAND), f"{name}: {step.operation.name} {step.fields}"


async def test_a_store_says_that_an_operation_needs_a_node(visitor: Visitor) -> None:
    """Rule 6: every step of such a noun, through every door to a store."""
    for scenario in SCENARIOS.values():
        for door in STORE_DOORS.values() if scenario.needs_node else ():
            for answer in await _play(scenario, door, visitor):
                assert answer == NO_COMMAND or "running server" in answer["error"]


@pytest.mark.parametrize("operation", OF_SERVERS)
async def test_a_store_does_not_answer_for_a_server(operation: Operation[..., Any], visitor: Visitor) -> None:
    """Rule 6: what a server is and does, only a server knows."""
    async with RUNNING_DOORS[REFERENCE](visitor) as opened:
        assert "error" not in await opened.ask(operation, {})
    async with STORE_DOORS["store"](visitor) as opened:
        assert "running server" in (await opened.ask(operation, {}))["error"]


def test_every_operation_of_a_noun_is_in_its_scenario() -> None:
    """And every noun has one."""
    modules = {one.__name__.rpartition(".")[2]: one for one in NOUNS}
    assert modules.keys() - SCENARIOS.keys() <= LATER
    for name, scenario in SCENARIOS.items():
        missing = set(operations_of(modules[name])) - {one.operation for one in scenario.steps} - set(OF_SERVERS)
        assert not missing, f"{name}: {missing}"


async def _play(scenario: Scenario, door: MakeDoor, visitor: Visitor) -> list[Any]:
    """Return the answers to the steps, without what differs by nature."""
    answers: list[Any] = []
    async with door(visitor) as opened:
        for operation, fields, _ in scenario.steps:
            answers.append(await opened.ask(operation, fields(answers) if callable(fields) else fields))
    known: dict[str, str] = {}
    return [_plain(one, known) for one in answers]


def _plain(value: Any, known: dict[str, str], field: str = "") -> Any:
    """Return a value with names for moments, ids and keys, in the order in which they come."""
    match value:
        case Mapping():
            return {name: _plain(one, known, name) for name, one in value.items() if name not in VARYING}
        case list():
            return [_plain(one, known) for one in value]
        case str() if re.match(r"\d{4}-\d\d-\d\d[T ]", value):
            return "a moment"
        case str() if field == "id" or value.startswith("tm_"):
            return known.setdefault(value, f"{field}{len(known)}")
        case str():
            return known.get(value, value)
    return value


async def test_a_command_without_a_key_says_where_it_goes(visitor: Visitor) -> None:
    """A person who types a command sends no header."""
    async with tm.Node() as node, served(node, CredentialAuthentication(node.access)) as server:
        door = CommandDoor(["--server", server.url], visitor.monkeypatch, visitor.capsys)
        assert "TIDEMILL_KEY" in (await door.ask(pools.list_pools, {}))["error"]
