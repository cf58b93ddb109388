"""Idempotency keys and the audit log, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tidemill.engine.access.audit_log import AuditLog
from tidemill.engine.graphs.client.dead_letter_client import DeadLetterClient
from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.engine.workflows.client import changes
from tidemill.engine.workflows.client.runs import RunReader
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.server.route_table import ROUTES
from tidemill.server.routes import pushes
from tidemill.storage.tables.access import AuditFilter

ATTEMPT_CALLS = ("start", "heartbeat", "logs", "result", "calls")

flow = tm.Workflow("flow")


@flow.task
def only() -> None:
    """Do nothing."""


later = tm.Workflow("later")


@later.task
def also() -> None:
    """Do nothing."""


@tm.passthrough
def numbers(event: int) -> int:
    """Pass a number on."""
    return event


sums = tm.Reactor("sums", [numbers], durability="boundary")


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a workflow."""
    async with tm.Node(load=[flow, sums]) as node, served(node) as one:
        yield one


async def test_the_same_key_and_body_get_the_same_answer(server: Served) -> None:
    """http.md: the same key and body gives the same answer; one run is started."""
    key = {"Idempotency-Key": "k1"}
    first = await server.http.post("/workflows/flow/runs", json={"params": {}}, headers=key)
    again = await server.http.post("/workflows/flow/runs", json={"params": {}}, headers=key)
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.headers["location"] == again.headers["location"]
    assert again.headers["idempotent-replayed"] == "true"
    assert (await server.http.get("/runs")).json()["total"] == 1


async def test_the_same_key_with_another_body_is_a_conflict(server: Served) -> None:
    """http.md: the same key and another body is 409 `idempotency_conflict`."""
    key = {"Idempotency-Key": "k1"}
    await server.http.post("/workflows/flow/runs", json={"params": {}}, headers=key)
    other = await server.http.post("/workflows/flow/runs", json={"params": {}, "note": "other"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


async def test_every_post_of_an_operation_takes_a_key() -> None:
    """A key that is ignored would let a repetition do it twice. GET, PUT and DELETE need none: they do the same again.

    The others make something that only their answer names, and that ends by itself; attempts have their own numbers;
    a check of a package changes nothing.
    """
    ignored = {one.path.removeprefix("/api/v1") for one in ROUTES if one.method == "POST" and not one.takes_key}
    checks = {"/packages/{name:str}/check"}
    assert ignored == {"/session", "/tickets", *checks, *(f"/attempts/{one}" for one in ATTEMPT_CALLS)}


async def test_a_change_is_repeated_without_effect(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an operation whose effect has no id: the answer is kept."""
    restarts = FailingStore(server.node.graph_client.restart_accumulator, failures=0)
    monkeypatch.setattr(server.node.graph_client, "restart_accumulator", restarts)
    key = {"Idempotency-Key": "k1"}
    answers = [await server.http.post("/accumulators/numbers/restart", headers=key) for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert restarts.fired == 1


async def test_a_secret_is_not_kept_for_a_key(server: Served) -> None:
    """A second key is not made, and the secret of the first is not in the store."""
    key = {"Idempotency-Key": "k1"}
    made, *again = [await server.http.post("/keys", json={"role": "read"}, headers=key) for _ in range(3)]
    assert made.status_code == 201
    assert [(one.status_code, one.json()["code"]) for one in again] == [(409, "answer_not_kept")] * 2
    assert (await server.http.get("/keys")).json()["total"] == 1
    record = await server.node.store.requests.get("public", "k1")
    assert record is not None
    assert (record.status, record.body) == (201, b"")


async def test_a_change_that_may_have_happened_is_not_repeated(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """errors.md: `outcome_unknown` for every POST whose effect cannot be found, and only if it may have had one."""
    key, restart = {"Idempotency-Key": "k1"}, "/accumulators/numbers/restart"
    restarts = FailingStore(server.node.graph_client.restart_accumulator, failures=1)
    monkeypatch.setattr(server.node.graph_client, "restart_accumulator", restarts)
    answers = [await server.http.post(restart, headers=key) for _ in range(2)]
    assert [one.status_code for one in answers] == [503, 200]
    restarts = FailingStore(server.node.graph_client.restart_accumulator, failures=1, after=True)
    monkeypatch.setattr(server.node.graph_client, "restart_accumulator", restarts)
    answers = [await server.http.post(restart, headers={"Idempotency-Key": "k2"}) for _ in range(3)]
    assert [one.json()["code"] for one in answers] == ["operation_failed", "outcome_unknown", "outcome_unknown"]
    assert restarts.fired == 1


async def test_an_answer_that_may_change_is_not_kept(server: Served) -> None:
    """A name that is not loaded yet, and a paused workflow: the same key starts the run later, once."""
    key = {"Idempotency-Key": "k1"}
    missing = await server.http.post("/workflows/later/runs", json={}, headers=key)
    assert (missing.status_code, missing.json()["code"]) == (404, "workflow_not_found")
    await server.node.load(later)
    await server.node.pause("later")
    paused = await server.http.post("/workflows/later/runs", json={}, headers=key)
    assert (paused.status_code, paused.json()["code"]) == (409, "workflow_paused")
    await server.node.resume("later")
    started = [await server.http.post("/workflows/later/runs", json={}, headers=key) for _ in range(2)]
    assert [one.status_code for one in started] == [201, 201]
    assert started[0].content == started[1].content


async def test_the_events_of_a_batch_are_applied_once(server: Served) -> None:
    """A batch is numbered by its key, also one with an event that becomes a dead letter."""
    key = {"Idempotency-Key": "k1", "Content-Type": "application/x-ndjson"}
    answers = [
        await server.http.post("/accumulators/numbers/events", content=b"1\ntwo\n3\n", headers=key) for _ in range(2)
    ]
    outcomes = [[receipt["outcome"] for receipt in one.json()["receipts"]] for one in answers]
    assert outcomes == [["emitted", "dead_lettered", "emitted"]] * 2
    last = await server.http.post("/accumulators/numbers/events", json=4)
    assert last.json()["sequence"] == 3


async def test_a_push_that_may_have_been_applied_is_not_answered_as_unknown(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """errors.md: `effect_unreadable`, since 404 would say that it had no effect; its receipt is there after a load."""
    key, path = {"Idempotency-Key": "k1"}, "/accumulators/numbers/events"
    client = server.node.graph_client
    with monkeypatch.context() as patch:
        patch.setattr(client, "push", FailingStore(client.push, failures=1, after=True))
        lost = await server.http.post(path, json=1, headers=key)
    await server.node.unload("reactor:sums")
    away = [await server.http.post(path, json=1, headers=headers) for headers in (key, key, {"Idempotency-Key": "k2"})]
    await server.node.load(sums)
    back = [await server.http.post(path, json=1, headers=key) for _ in range(2)]
    assert (lost.status_code, lost.json()["code"]) == (500, "operation_failed")
    unreadable, unknown = (503, "effect_unreadable"), (404, "accumulator_not_found")
    assert [(one.status_code, one.json()["code"]) for one in away] == [unreadable, unreadable, unknown]
    assert [(one.status_code, one.json()["sequence"]) for one in back] == [(200, 1), (200, 1)]


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
async def test_a_push_that_was_applied_is_not_rejected_for_lack_of_space(
    monkeypatch: pytest.MonkeyPatch, media_type: str
) -> None:
    """G-24: "rejected" says that it had no effect. One event, and a batch of one."""
    monkeypatch.setattr(pushes, "PATIENCE_SECONDS", 0.05)
    path, is_one = "/accumulators/numbers/events", media_type == "application/json"
    full = tm.Reactor("full", [numbers], strategy="sequential", capacity=1)
    async with tm.Node(load=[full]) as node, served(node) as server:
        await node.reactor("full").pause()
        name = "push" if is_one else "push_many"
        with monkeypatch.context() as patch:
            lost = FailingStore(getattr(node.graph_client, name), failures=1, after=True)
            patch.setattr(node.graph_client, name, lost)
            await server.http.post(path, content=b"1", headers={"Idempotency-Key": "k1", "Content-Type": media_type})
        again, other = [
            (await server.http.post(path, content=b"1", headers={"Idempotency-Key": key, "Content-Type": media_type}))
            for key in ("k1", "k2")
        ]
    receipt = again.json() if is_one else again.json()["receipts"][0]
    assert (receipt["outcome"], receipt["sequence"]) == ("emitted", 1)
    code = other.json()["code"] if is_one else other.json()["receipts"][0]["code"]
    assert (lost.fired, code) == (1, "paused")


async def test_a_malformed_key_is_rejected(server: Served) -> None:
    """A key has at most 200 characters."""
    answer = await server.http.post("/workflows/flow/runs", json={"params": {}}, headers={"Idempotency-Key": "k" * 201})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")


async def test_a_change_is_in_the_audit_log_with_its_request(server: Served) -> None:
    """S-7: who did what to what, and in which request; a request that failed changed nothing."""
    answer = await server.http.post("/workflows/flow/runs", json={"params": {}})
    await server.http.post("/workflows/missing/runs", json={"params": {}})
    (entry,), total = await server.node.access.audit.find(AuditFilter(tenant="public"))
    assert total == 1
    assert (entry.action, entry.target, entry.actor) == ("run.start", "flow", "local")
    assert entry.details == {"run": answer.json()["id"]}
    assert entry.request_id == answer.headers["x-request-id"]


class FailingStore:
    """Fails as the store does when a reactor is looked for, or afterwards; `fired` are the commands that were given."""

    def __init__(self, command: Any, failures: int, *, after: bool = False) -> None:
        self._command = command
        self._failures = failures
        self._after = after
        self.fired = 0

    async def __call__(self, *arguments: Any) -> Any:
        """Give the command, and fail."""
        if self._failures and not self._after:
            self._failures -= 1
            raise StoreError("the store is away")
        self.fired += 1
        result = await self._command(*arguments)
        if self._failures:
            raise OperationError("the answer is lost")
        return result


FIRE = {"command": "fire_with", "inputs": {"numbers": 1}}


async def test_a_store_that_fails_behind_a_change_does_not_let_it_be_made_again(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """http.md: `outcome_unknown`, since the error came after the change; no answer says where the store is."""

    async def fail(*_: Any, **__: Any) -> None:
        raise StoreError("the store at 127.0.0.1 is away")

    hanging = tm.Workflow("hanging")
    hanging.task(asyncio.Event().wait, name="wait")
    await server.node.load(hanging)
    ended, active = await server.node.start("flow"), await server.node.start("hanging")
    await ended.wait(10)
    await server.http.post("/accumulators/numbers/events", json="two")
    (letter,) = (await server.http.get("/dead-letters")).json()["items"]
    for path, body, place, name in [
        (f"/runs/{ended.id}/clear", {"tasks": ["only"]}, changes, "count_live_nodes"),
        (f"/runs/{active.id}/cancel", {}, RunReader, "load_plain_result"),
        (f"/dead-letters/{letter['id']}/replay", {"event": 2}, DeadLetterClient, "drop"),
        ("/keys", {"role": "read"}, AuditLog, "record"),
    ]:
        key = {"Idempotency-Key": path}
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail)
            first = await server.http.post(path, json=body, headers=key)
        again = await server.http.post(path, json=body, headers=key)
        codes = [(one.status_code, one.json()["code"]) for one in (first, again)]
        assert codes == [(500, "operation_failed"), (409, "outcome_unknown")], path
        assert "127.0.0.1" not in first.text
    assert (await ended.wait(10)).tasks["only"].attempts == 2
    assert (await active.wait(10)).state == "cancelled"
    assert (await server.http.get("/accumulators/numbers")).json()["emitted"] == 1
    assert (await server.http.get("/keys")).json()["total"] == 1


async def test_a_store_that_was_away_does_not_keep_a_reactor_from_firing(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """http.md: the same key fires once the store is back, and only then; its answer is kept."""
    key = {"Idempotency-Key": "k1"}
    client = server.node.graph_client
    failing = FailingStore(client.command, failures=2)
    monkeypatch.setattr(client, "command", failing)
    answers = [await server.http.post("/reactors/sums/commands", json=FIRE, headers=key) for _ in range(4)]
    assert [one.status_code for one in answers] == [503, 503, 200, 200]
    assert answers[0].headers["retry-after"] == "1"
    assert answers[2].content == answers[3].content
    assert failing.fired == 1


async def test_a_reactor_that_may_have_fired_is_not_fired_again(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """errors.md: `outcome_unknown` after an error that says nothing about the firing."""
    key = {"Idempotency-Key": "k1"}
    client = server.node.graph_client
    failing = FailingStore(client.command, failures=1, after=True)
    monkeypatch.setattr(client, "command", failing)
    answers = [await server.http.post("/reactors/sums/commands", json=FIRE, headers=key) for _ in range(3)]
    assert [one.json()["code"] for one in answers] == ["operation_failed", "outcome_unknown", "outcome_unknown"]
    assert failing.fired == 1


async def test_a_store_that_fails_after_a_firing_does_not_hide_it(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of the reactor is read after it has fired: the answer is not that of a command without effect."""
    key = {"Idempotency-Key": "k1"}

    async def fail(*_: Any) -> None:
        raise StoreError("the store is away")

    monkeypatch.setattr(GraphOperations, "reactor_state", fail)
    answers = [await server.http.post("/reactors/sums/commands", json=FIRE, headers=key) for _ in range(2)]
    assert [one.json()["code"] for one in answers] == ["operation_failed", "outcome_unknown"]
    assert len(server.node.reactor("sums").firings()) == 1
