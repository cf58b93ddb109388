"""Runs over HTTP: start, list, read, follow, cancel, retry, clear, annotate."""

from collections.abc import AsyncIterator

import msgspec
import pytest

import tidemill as tm
from tests.contract.run_samples import creation, make, run_row
from tests.service.server.serving_node import Served, create_tenant, served
from tests.service.server.workflow_samples import finish, make_report, read_stream, start
from tidemill.access.principal import Caller
from tidemill.kernel.errors import RequestError
from tidemill.workflows.records import RunRecord
from tidemill.workflows.states import RunState


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with the report, and a workflow whose runs do not end."""
    waiting = tm.Workflow("waiting")

    @waiting.task
    async def forever(ctx: tm.Context) -> None:
        ctx.defer(for_="1h")

    async with tm.Node(load=[make_report(), waiting]) as node, served(node) as one:
        yield one


# -- start


async def test_a_start_answers_with_the_run_and_its_place(server: Served) -> None:
    """S-1: 201, Location, and the run with its note; params may hold any text."""
    body = {"params": {"day": "naïve 名前"}, "note": "für 財務"}
    answer = await server.http.post("/workflows/report/runs", json=body)
    run = answer.json()
    assert answer.status_code == 201
    assert (run["workflow"], run["origin"], run["note"]) == ("report", "manual", "für 財務")
    assert run["params"] == {"day": "naïve 名前", "rows": 3}
    there = await server.http.get(server.url + answer.headers["location"])
    assert there.json()["id"] == run["id"]


async def test_a_start_answers_from_what_it_wrote(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader has just written the run: it reads nothing back, and answers as the store would."""
    client = server.node.workflow_client

    async def read_back(*_: object) -> RunRecord:
        raise AssertionError("read after the write")

    with monkeypatch.context() as patched:
        patched.setattr(client.runs, "load_record", read_back)
        answer = await server.http.post("/workflows/waiting/runs")
    run = answer.json()
    assert (answer.status_code, run["state"], list(run["tasks"])) == (201, "running", ["forever"])
    stored = (await server.http.get(f"/runs/{run['id']}")).json()
    changing = {"etag", "tasks", "task_states"}
    assert {name: run[name] for name in run.keys() - changing} == {name: stored[name] for name in run.keys() - changing}


async def test_a_start_without_a_body_has_no_params(server: Served) -> None:
    answer = await server.http.post("/workflows/waiting/runs")
    assert (answer.status_code, answer.json()["params"], answer.json()["note"]) == (201, {}, None)


async def test_a_start_with_msgpack_is_answered_in_msgpack(server: Served) -> None:
    """http.md: by Content-Type and Accept."""
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    content = msgspec.msgpack.encode({"params": {"day": "x"}})
    answer = await server.http.post("/workflows/report/runs", content=content, headers=headers)
    assert answer.status_code == 201
    assert msgspec.msgpack.decode(answer.content)["params"] == {"day": "x", "rows": 3}


async def test_invalid_params_are_named_by_their_paths(server: Served) -> None:
    """http.md: errors of bad bodies have the path of the field, all at once."""
    answer = await server.http.post("/workflows/report/runs", json={"params": {"rows": "x", "dya": "y"}})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "invalid_params")
    assert {one["path"] for one in problem["errors"]} == {"params.rows", "params.dya", "params.day"}
    unknown = (await server.http.post("/workflows/report/runs", json={"parms": {}})).json()
    assert (unknown["code"], unknown["errors"][0]["path"]) == ("invalid_request", "parms")
    assert "did you mean 'params'" in unknown["errors"][0]["message"]


async def test_an_unknown_workflow_is_not_found_with_suggestions(server: Served) -> None:
    """http.md: `suggestions` where a name was close; another tenant's workflow is unknown here."""
    answer = await server.http.post("/workflows/reprot/runs", json={})
    assert (answer.status_code, answer.json()["code"]) == (404, "workflow_not_found")
    assert answer.json()["suggestions"] == ["report"]
    other = await server.http.post("/workflows/report/runs", json={}, headers=await create_tenant(server))
    assert (other.status_code, other.json()["suggestions"]) == (404, [])


async def test_a_paused_workflow_starts_no_run(server: Served) -> None:
    await server.node.pause("waiting")
    answer = await server.http.post("/workflows/waiting/runs")
    assert (answer.status_code, answer.json()["code"]) == (409, "workflow_paused")


# -- lists


async def test_runs_are_listed_in_pages(server: Served) -> None:
    """http.md: items, total and next; the last page has no next."""
    ids = [(await start(server, "waiting"))["id"] for _ in range(5)]
    seen, cursor, sizes = [], None, []
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await server.http.get("/runs", params=query)).json()
        seen += [run["id"] for run in page["items"]]
        sizes.append((len(page["items"]), page["total"]))
        if (cursor := page["next"]) is None:
            break
    assert seen == ids[::-1]
    assert sizes == [(2, 5), (2, 5), (1, 5)]


async def test_a_full_last_page_has_no_next(server: Served) -> None:
    for _ in range(2):
        await start(server, "waiting")
    assert (await server.http.get("/runs", params={"limit": 2})).json()["next"] is None


async def test_runs_are_filtered(server: Served) -> None:
    """http.md: workflow, state repeated, from, to, q."""
    failed = await finish(server, day="Montag", rows=-1)
    succeeded = await finish(server, day="Dienstag")
    waiting = (await start(server, "waiting"))["id"]
    await server.http.put(f"/runs/{waiting}/note", json={"text": "Über THE 50%_limit"})
    created = (await server.http.get(f"/runs/{succeeded}")).json()["created_at"]

    async def found(**query: str | list[str]) -> set[str]:
        page = (await server.http.get("/runs", params=query)).json()
        assert page["total"] == len(page["items"])
        return {run["id"] for run in page["items"]}

    assert await found(workflow="report") == {failed, succeeded}
    assert await found(state="failed") == {failed}
    assert await found(state=["failed", "running"]) == {failed, waiting}
    assert await found(q="the 50%_") == {waiting}
    assert await found(q="Montag") == {failed}
    refused = await server.http.get("/runs", params={"q": "\0"})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "q")
    assert await found(to=created) == {failed, succeeded}
    assert await found(**{"from": created, "workflow": "report"}) == {succeeded}
    assert await found(**{"from": "0001-01-01T00:00:00+14:00", "to": "9999-12-31T23:59:59-12:00"}) == {
        failed,
        succeeded,
        waiting,
    }


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"state": "faild"}, "state"),
        ({"limit": "0"}, "limit"),
        ({"limit": "501"}, "limit"),
        ({"from": "2026-01-01T00:00:00"}, "from"),
        ({"to": "yesterday"}, "to"),
    ],
)
async def test_an_invalid_parameter_is_named(server: Served, query: dict[str, str], path: str) -> None:
    answer = await server.http.get("/runs", params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert [one["path"] for one in answer.json()["errors"]] == [path]


@pytest.mark.parametrize("cursor", ["%%", "gaFhoWI", "", "kqFhoWI"])
async def test_a_cursor_of_something_else_is_refused(server: Served, cursor: str) -> None:
    answer = await server.http.get("/runs", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")


async def test_a_run_with_damaged_params_hides_no_other(server: Served) -> None:
    await start(server, "waiting")
    damaged = run_row("damaged", params=b"\xc1", state=RunState.SUCCESS)
    await make(server.node.store, creation(damaged))
    page = (await server.http.get("/runs")).json()
    assert {run["id"]: run["params"] for run in page["items"]}["damaged"] is None
    assert page["total"] == 2


# -- one run


async def test_a_run_has_the_fields_of_its_result(server: Served) -> None:
    """http.md: with outputs, an answer is a tm.RunResult."""
    run = await finish(server, day="x")
    light = (await server.http.get(f"/runs/{run}")).json()
    assert light["task_states"] == {"success": 5}
    assert {name: task["output"] for name, task in light["tasks"].items()} == dict.fromkeys(["fetch", "clean", "load"])
    whole = await server.http.get(f"/runs/{run}", params={"outputs": "true"})
    result = msgspec.json.decode(whole.content, type=tm.RunResult)
    assert result.outputs == {"fetch": [0, 1, 2], "clean": [0, 2, 4], "load": {"sum": 6}}
    assert [one.output for one in result.tasks["clean"].mapped] == [0, 2, 4]


async def test_a_failed_run_says_why(server: Served) -> None:
    run = await finish(server, day="x", rows=-1)
    answer = (await server.http.get(f"/runs/{run}")).json()
    assert answer["error"] == {"task": "load", "type": "ValueError", "message": "negative rows"}


async def test_an_etag_saves_the_answer_until_the_run_changes(server: Served) -> None:
    """http.md: If-None-Match answers 304, a stale If-Match 412."""
    run = await finish(server, day="x")
    etag = (await server.http.get(f"/runs/{run}")).headers["etag"]
    again = await server.http.get(f"/runs/{run}", headers={"if-none-match": f'"other", {etag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    noted = await server.http.put(f"/runs/{run}/note", json={"text": "a"}, headers={"if-match": etag})
    assert noted.status_code == 200
    assert (await server.http.get(f"/runs/{run}", headers={"if-none-match": etag})).status_code == 200
    for method, path, body in [
        ("PUT", "note", {"text": "b"}),
        ("POST", "cancel", {}),
        ("POST", "retry", {}),
        ("POST", "clear", {"tasks": ["load"]}),
    ]:
        stale = await server.http.request(method, f"/runs/{run}/{path}", json=body, headers={"if-match": etag})
        assert (stale.status_code, stale.json()["code"]) == (412, "stale_etag")
    assert (await server.http.get(f"/runs/{run}")).json()["note"] == "a"


async def test_a_precondition_is_checked_with_the_change_itself(server: Served) -> None:
    """http.md: 412 also for a run that changes between the check of the request and the change."""
    run = (await start(server, "waiting"))["id"]
    caller, client = Caller("public", "tester"), server.node.workflow_client
    seen: list[RunState] = []

    def refuse(record: RunRecord) -> None:
        seen.append(record.run.state)
        raise RequestError("stale", code="stale_etag", status=412)

    with pytest.raises(RequestError, match="stale"):
        await client.changes.cancel(caller, run, check=refuse)
    assert (seen, (await client.runs.load_record(caller, run)).run.state) == ([RunState.RUNNING], RunState.RUNNING)
    await client.changes.cancel(caller, run, check=lambda record: seen.append(record.run.state))
    with pytest.raises(RequestError, match="stale"):
        await client.changes.clear(caller, run, ["forever"], check=refuse)
    assert seen == [RunState.RUNNING, RunState.RUNNING, RunState.CANCELLED]


async def test_a_run_of_another_tenant_is_unknown(server: Served) -> None:
    """S-5: 404 on every route."""
    run = (await start(server, "waiting"))["id"]
    acme = await create_tenant(server)
    assert (await server.http.get("/runs", headers=acme)).json()["items"] == []
    for method, path, body in [
        ("GET", "", None),
        ("GET", "/events", None),
        ("POST", "/cancel", {}),
        ("POST", "/retry", {}),
        ("POST", "/clear", {"tasks": ["forever"]}),
        ("PUT", "/note", {"text": "x"}),
    ]:
        answer = await server.http.request(method, f"/runs/{run}{path}", json=body, headers=acme)
        assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found"), path
        unknown = await server.http.request(method, f"/runs/no%00run{path}", json=body)
        assert (unknown.status_code, unknown.json()["code"]) == (404, "run_not_found"), path


# -- commands


async def test_a_run_is_cancelled_once(server: Served) -> None:
    run = (await start(server, "waiting"))["id"]
    answer = await server.http.post(f"/runs/{run}/cancel", json={"reason": "not needed"})
    assert (answer.status_code, answer.json()["state"], answer.json()["reason"]) == (200, "cancelled", "not needed")
    again = await server.http.post(f"/runs/{run}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "run_ended")


async def test_a_preview_says_what_reruns_and_changes_nothing(server: Served) -> None:
    """S-8: retry with preview."""
    run = await finish(server, day="x", rows=-1)
    preview = (await server.http.post(f"/runs/{run}/retry", json={"preview": True})).json()
    assert (preview["reruns"], preview["reused"], preview["preview"]) == (["load"], ["fetch", "clean"], True)
    some = (await server.http.post(f"/runs/{run}/retry", json={"from": "clean", "preview": True})).json()
    assert (some["reruns"], some["reused"]) == (["clean", "load"], ["fetch"])
    assert some["elements"] == {"clean": {"reruns": 1, "total": 1}}
    assert (await server.http.get(f"/runs/{run}")).json()["state"] == "failed"


async def test_a_retry_reruns_what_failed(server: Served) -> None:
    run = await finish(server, day="x", rows=-1)
    answer = (await server.http.post(f"/runs/{run}/retry")).json()
    assert (answer["reruns"], answer["preview"]) == (["load"], False)
    result = await server.node.run_handle(run).wait(timeout="10s")
    assert {name: task.attempts for name, task in result.tasks.items()} == {"fetch": 1, "clean": 1, "load": 2}


async def test_clear_takes_tasks_and_refuses_what_it_cannot_clear(server: Served) -> None:
    run = await finish(server, day="x")
    for body, status, code in [
        ({"tasks": ["laod"]}, 404, "task_not_found"),
        ({"tasks": []}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"tasks": "load"}, 400, "invalid_request"),
    ]:
        answer = await server.http.post(f"/runs/{run}/clear", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    nothing = await server.http.post(f"/runs/{run}/retry")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "nothing_to_retry")
    cleared = await server.http.post(f"/runs/{run}/clear", json={"tasks": ["load"], "latest": False})
    assert cleared.json()["reruns"] == ["load"]


# -- events


async def test_the_events_of_a_run_are_listed_in_pages(server: Served) -> None:
    run = await finish(server, day="x")
    every = (await server.http.get(f"/runs/{run}/events", params={"limit": 500})).json()
    assert [one["number"] for one in every["items"]] == list(range(1, every["total"] + 1))
    assert (every["items"][-1]["task"], every["items"][-1]["after"]) == (None, "success")
    first = (await server.http.get(f"/runs/{run}/events", params={"limit": 3})).json()
    second = (await server.http.get(f"/runs/{run}/events", params={"limit": 3, "cursor": first["next"]})).json()
    assert first["items"] + second["items"] == every["items"][:6]


async def test_events_are_followed_and_resumed_without_a_gap(server: Served) -> None:
    """http.md: Last-Event-ID continues after that event; the stream ends with the run."""
    run = (await start(server, day="x"))["id"]
    events = await read_stream(server, f"/runs/{run}/events")
    assert [int(number or 0) for number, _, _ in events] == list(range(1, len(events) + 1))
    assert (events[-1][2]["task"], events[-1][2]["after"]) == (None, "success")
    assert await read_stream(server, f"/runs/{run}/events", last_event_id="3") == events[3:]
    refused = await server.http.get(
        f"/runs/{run}/events", headers={"accept": "text/event-stream", "last-event-id": "x"}
    )
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_event_id")


async def test_a_stream_tells_why_it_ends_when_the_node_closes() -> None:
    """http.md, streams: with a status that tells clients to ask again."""
    waiting = tm.Workflow("waiting")

    @waiting.task
    async def forever(ctx: tm.Context) -> None:
        ctx.defer(for_="1h")

    async with tm.Node(load=[waiting]) as node, served(node) as server:
        run = (await start(server, "waiting"))["id"]
        async with server.http.stream("GET", f"/runs/{run}/events", headers={"accept": "text/event-stream"}) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            node.workflow_client.watcher.close()
            rest = [line async for line in lines]
    assert "event: error" in rest
    assert any('"code":"not_running","status":503' in line for line in rest)


async def test_the_audit_log_has_what_happened_and_no_previews(sqlite: str) -> None:
    """A clear is a clear; a run that a person started says who did."""
    async with tm.Node(sqlite, load=[make_report()]) as node, served(node) as server:
        run = await finish(server, day="1", rows=-1)
        assert (await server.http.get(f"/runs/{run}")).json()["actor"] == "local"
        for path, body in (("retry", {}), ("clear", {"tasks": ["load"]})):
            answer = await server.http.post(f"/runs/{run}/{path}", json={**body, "preview": True})
            answer.raise_for_status()
        (await server.http.post(f"/runs/{run}/clear", json={"tasks": ["load"]})).raise_for_status()
        entries = (await server.http.get("/audit")).json()["items"]
    assert [(one["action"], one["target"], one["details"]) for one in entries] == [
        ("run.clear", run, {}),
        ("run.start", "report", {"run": run}),
    ]
