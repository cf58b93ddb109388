"""Every operation through four doors: a node, a bare store, HTTP, and its command with a server and with a store.

The answers and the messages of errors are the same everywhere (rules 5 and 6 of operations).
"""

import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.contract.api.doors import RUNNING_DOORS, STORE_DOORS, CommandDoor, MakeDoor, Visitor
from tests.contract.api.scenarios import SCENARIOS, Scenario
from tests.service.server.serving_node import served
from tidemill.api import import_errors, nodes, overview, pools, system
from tidemill.api.operation import Operation
from tidemill.api.table import NOUNS, operations_of
from tidemill.server.authentication import CredentialAuthentication

REFERENCE = "node"
OF_SERVERS = (overview.get_overview, system.get_system, system.get_system_metrics, import_errors.list_import_errors)
"""Operations that only a server answers."""
VARYING = {"duration", "etag", "live_nodes", "loaded", "nodes", "p50", "p99", "push_seconds", "request_id"}
"""Fields that differ by nature: how long it took, with how many writes, and what only a node or a request has."""


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
    visitor = visitor._replace(load=scenario.load, prepare=scenario.prepare)
    expected = await _play(scenario, RUNNING_DOORS[REFERENCE], visitor)
    takes_fields = any(step.operation.fields for step in scenario.steps)
    has_error = any("error" in one for one in expected if isinstance(one, dict))
    assert has_error or not takes_fields, "a scenario has a request that fails"
    for name, door in {**RUNNING_DOORS, **({} if scenario.needs_node else STORE_DOORS)}.items():
        answers = await _play(scenario, door, visitor)
        for step, answer, wanted in zip(scenario.steps, answers, expected, strict=True):
            if step.refusal and name in STORE_DOORS:
                assert step.refusal in answer["error"]
                continue
            if name in STORE_DOORS and isinstance(wanted, dict):
                wanted = {**wanted, **dict.fromkeys(step.of_code)}
            assert answer == wanted, f"{name}: {step.operation.name} {step.fields}"


async def test_a_store_says_that_an_operation_needs_a_node(visitor: Visitor) -> None:
    """Rule 6: every step of such a noun, through every door to a store."""
    for scenario in SCENARIOS.values():
        for door in STORE_DOORS.values() if scenario.needs_node else ():
            for answer in await _play(scenario, door, visitor):
                assert "running server" in answer["error"]


@pytest.mark.parametrize("operation", OF_SERVERS)
async def test_a_store_does_not_answer_for_a_server(operation: Operation[..., Any], visitor: Visitor) -> None:
    """Rule 6: what a server is and does, only a server knows."""
    async with STORE_DOORS["store"](visitor) as opened:
        assert "running server" in (await opened.ask(operation, {}))["error"]


@pytest.mark.parametrize("operation", [*OF_SERVERS, nodes.list_nodes])
async def test_every_server_answers_for_itself(operation: Operation[..., Any], visitor: Visitor) -> None:
    """Rule 5: the values differ from process to process, their fields do not."""
    shapes = []
    for door in RUNNING_DOORS.values():
        async with door(visitor) as opened:
            answer = await opened.ask(operation, {})
        assert "error" not in answer
        shapes.append(sorted(answer if isinstance(answer, dict) else set().union(*answer)))
    assert shapes == [shapes[0]] * len(RUNNING_DOORS)


def test_every_operation_goes_through_the_doors() -> None:
    """In the scenario of its noun; or as one that each server answers for itself."""
    for noun in NOUNS:
        name = noun.__name__.rpartition(".")[2]
        asked = {one.operation for one in SCENARIOS[name].steps} if name in SCENARIOS else set()
        missing = set(operations_of(noun)) - asked - {*OF_SERVERS, nodes.list_nodes}
        assert not missing, f"{name}: {missing}"


async def _play(scenario: Scenario, door: MakeDoor, visitor: Visitor) -> list[Any]:
    """Return the answers to the steps, without what differs by nature."""
    answers: list[Any] = []
    async with door(visitor) as opened:
        for operation, fields, *_ in scenario.steps:
            answers.append(await opened.ask(operation, fields(answers) if callable(fields) else fields))
    known: dict[str, str] = {}
    return [
        _plain(one, known, omitted=VARYING | step.varies) for one, step in zip(answers, scenario.steps, strict=True)
    ]


def _plain(value: Any, known: dict[str, str], field: str = "", *, omitted: Set[str]) -> Any:
    """Return a value with names for moments, ids and keys, in the order in which they come."""
    match value:
        case Mapping():
            return {
                name: _plain(one, known, name, omitted=omitted) for name, one in value.items() if name not in omitted
            }
        case list():
            return [_plain(one, known, omitted=omitted) for one in value]
        case str() if field == "id" or value.startswith("tm_"):
            return known.setdefault(value, f"{field}{len(known)}")
        case str() if field in ("actor", "worker") and re.fullmatch(r"[0-9a-z]{8}", value):
            return "a node"
        case str():
            text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?", "a moment", value)
            return re.sub(r"\w{8,}", lambda word: known.get(word[0], word[0]), text)
    return value


async def test_a_command_without_a_key_says_where_it_goes(visitor: Visitor) -> None:
    """A person who types a command sends no header."""
    async with tm.Node() as node, served(node, CredentialAuthentication(node.access)) as server:
        door = CommandDoor(["--server", server.url], visitor.monkeypatch, visitor.capsys)
        assert "TIDEMILL_KEY" in (await door.ask(pools.list_pools, {}))["error"]
