"""Tasks of a run over HTTP: states, attempts, outputs, logs, and why they have not run."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, create_tenant, served
from tests.service.server.workflow_samples import finish, make_report, read_stream, start
from tidemill.api.paging import encode_cursor


def make_talking(gate: asyncio.Event) -> tm.Workflow:
    """Return a workflow that logs before and after a gate opens, fails once, and waits for another task."""
    talking = tm.Workflow("talking")
    calls: list[int] = []

    @talking.task(retry=tm.Retry(1, delay="1ms"))
    async def talk(ctx: tm.Context) -> str:
        calls.append(1)
        ctx.log.warning("naïve 名前", call=len(calls), odd={1: b"x"})
        if len(calls) == 1:
            raise ValueError("once")
        await gate.wait()
        ctx.log.info("after the gate")
        return "said"

    @talking.task
    async def listen(talk: str) -> str:
        return talk

    return talking


async def open_gate(gate: asyncio.Event) -> None:
    """Let the task go on."""
    gate.set()


@pytest.fixture
def gate() -> asyncio.Event:
    """The gate at which the task waits."""
    return asyncio.Event()


@pytest.fixture
async def server(gate: asyncio.Event) -> AsyncIterator[Served]:
    """A served node with the report, and a workflow that talks."""
    async with tm.Node(load=[make_report(), make_talking(gate)]) as node, served(node) as one:
        yield one
        gate.set()


async def test_tasks_are_listed_in_topological_order(server: Served) -> None:
    run = await finish(server, day="x", rows=-4)
    page = (await server.http.get(f"/runs/{run}/tasks")).json()
    assert [(one["task"], one["state"]) for one in page["items"]] == [
        ("fetch", "success"),
        ("clean", "success"),
        ("load", "failed"),
    ]
    fetch, clean, load = page["items"]
    assert (fetch["elements"], clean["elements"], clean["index"]) == (None, {"success": 4}, None)
    assert (load["error"]["type"], load["error"]["message"]) == ("ValueError", "negative rows")
    assert (fetch["executor"], fetch["queue"], fetch["attempts"]) == ("in_process", "default", 1)
    first = (await server.http.get(f"/runs/{run}/tasks", params={"limit": 2})).json()
    rest = (await server.http.get(f"/runs/{run}/tasks", params={"limit": 2, "cursor": first["next"]})).json()
    assert first["items"] + rest["items"] == page["items"]


async def test_the_elements_of_a_mapped_task_are_listed(server: Served) -> None:
    """S-9: in pages, as a task may have many."""
    run = await finish(server, day="x", rows=12)
    page = (await server.http.get(f"/runs/{run}/tasks", params={"task": "clean", "limit": 10})).json()
    assert ([one["index"] for one in page["items"]], page["total"]) == (list(range(10)), 12)
    rest = (await server.http.get(f"/runs/{run}/tasks", params={"task": "clean", "cursor": page["next"]})).json()
    assert [(one["index"], one["elements"]) for one in rest["items"]] == [(10, None), (11, None)]


async def test_elements_are_read_without_the_rest_of_the_run(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-9: pages, one element, its log, and "nothing has changed" do not depend on the number of elements."""
    run = await finish(server, day="x", rows=12)
    etag = (await server.http.get(f"/runs/{run}")).headers["etag"]

    async def load(ids: Any) -> Any:
        raise AssertionError(f"the whole of {ids} is read")

    monkeypatch.setattr(server.node.store.runs, "load", load)
    page = (await server.http.get(f"/runs/{run}/tasks", params={"task": "clean", "limit": 3})).json()
    assert (len(page["items"]), page["total"]) == (3, 12)
    element = (await server.http.get(f"/runs/{run}/tasks/clean", params={"index": 7})).json()
    assert (element["index"], element["state"]) == (7, "success")
    logs = (await server.http.get(f"/runs/{run}/tasks/clean/logs", params={"index": 7})).json()
    assert [(line["index"], line["fields"]) for line in logs["items"]] == [(7, {"row": 7})]
    assert (await server.http.get(f"/runs/{run}", headers={"if-none-match": etag})).status_code == 304


async def test_a_list_of_elements_ends_and_names_an_unknown_task(server: Served) -> None:
    """http.md: `next` is null on the last page; a task without elements has none."""
    run = await finish(server, day="x", rows=4)
    page = (await server.http.get(f"/runs/{run}/tasks", params={"task": "clean", "limit": 4})).json()
    assert (len(page["items"]), page["next"]) == (4, None)
    plain = (await server.http.get(f"/runs/{run}/tasks", params={"task": "fetch"})).json()
    assert plain == {"items": [], "total": 0, "next": None}
    unknown = await server.http.get(f"/runs/{run}/tasks", params={"task": "claen"})
    assert (unknown.status_code, unknown.json()["suggestions"]) == (404, ["clean"])
    far = await server.http.get(f"/runs/{run}/tasks", params={"task": "clean", "cursor": encode_cursor(2**40)})
    assert (far.status_code, far.json()["code"]) == (400, "invalid_cursor")


async def test_tasks_and_elements_are_listed_by_state(server: Served) -> None:
    """S-9: what failed is found among many, in pages too."""
    run = await finish(server, day="x", rows=-4)
    failed = (await server.http.get(f"/runs/{run}/tasks", params={"state": "failed"})).json()
    assert ([one["task"] for one in failed["items"]], failed["total"], failed["next"]) == (["load"], 1, None)
    wanted = {"task": "clean", "state": ["success", "failed"], "limit": 3}
    first = (await server.http.get(f"/runs/{run}/tasks", params=wanted)).json()
    rest = (await server.http.get(f"/runs/{run}/tasks", params={**wanted, "cursor": first["next"]})).json()
    assert [one["index"] for one in first["items"] + rest["items"]] == [0, 1, 2, 3]
    assert (first["total"], rest["next"]) == (4, None)


async def test_a_task_and_an_element_are_read(server: Served) -> None:
    """http.md: `index` for one element."""
    run = await finish(server, day="x")
    assert (await server.http.get(f"/runs/{run}/tasks/clean")).json()["elements"] == {"success": 3}
    element = (await server.http.get(f"/runs/{run}/tasks/clean", params={"index": 2})).json()
    assert (element["task"], element["index"], element["state"]) == ("clean", 2, "success")


@pytest.mark.parametrize("route", ["", "/why", "/attempts", "/output", "/logs"])
async def test_an_unknown_task_is_not_found(server: Served, route: str) -> None:
    """Also the element that a task lacks, and a run of another tenant."""
    run = await finish(server, day="x")
    for path, query, code in [
        (f"/runs/{run}/tasks/laod{route}", {}, "task_not_found"),
        (f"/runs/{run}/tasks/clean{route}", {"index": "7"}, "task_not_found"),
        (f"/runs/{run}/tasks/load{route}", {"index": "0"}, "task_not_found"),
        (f"/runs/none/tasks/load{route}", {}, "run_not_found"),
    ]:
        answer = await server.http.get(path, params=query)
        assert (answer.status_code, answer.json()["code"]) == (404, code)
    other = await server.http.get(f"/runs/{run}/tasks/load{route}", headers=await create_tenant(server))
    assert (other.status_code, other.json()["code"]) == (404, "run_not_found")
    wrong = await server.http.get(f"/runs/{run}/tasks/clean{route}", params={"index": -1})
    assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (400, "index")


async def test_why_says_what_a_task_waits_for(server: Served) -> None:
    run = (await start(server, "talking"))["id"]
    answer = await server.http.get(f"/runs/{run}/tasks/listen/why")
    assert answer.status_code == 200
    assert any("'talk'" in reason for reason in answer.json()["reasons"])


async def test_why_of_a_run_explains_every_task_that_has_not_ended(server: Served, gate: asyncio.Event) -> None:
    """S-8: a sentence on each waiting task, in one request, and the same as that of the task."""
    run = (await start(server, "talking"))["id"]
    async with asyncio.timeout(10):
        while (await server.http.get(f"/runs/{run}/tasks/talk")).json()["state"] != "running":
            pass
    reasons = (await server.http.get(f"/runs/{run}/why")).json()["reasons"]
    assert reasons.keys() == {"talk", "listen"}
    assert reasons["listen"] == ["it waits for 'talk', which is running"]
    for task, sentences in reasons.items():
        assert (await server.http.get(f"/runs/{run}/tasks/{task}/why")).json()["reasons"] == sentences
    gate.set()
    await server.node.run_handle(run).wait(timeout="10s")
    assert (await server.http.get(f"/runs/{run}/why")).json() == {"reasons": {}}
    other = await server.http.get(f"/runs/{run}/why", headers=await create_tenant(server))
    assert (other.status_code, other.json()["code"]) == (404, "run_not_found")


async def test_attempts_are_listed_with_their_errors(server: Served, gate: asyncio.Event) -> None:
    gate.set()
    run = await finish(server, "talking")
    first, second = (await server.http.get(f"/runs/{run}/tasks/talk/attempts")).json()["items"]
    assert (first["attempt"], first["outcome"], first["error"]["message"]) == (1, "failed", "once")
    assert (second["attempt"], second["outcome"], second["error"], second["try_number"]) == (2, "success", None, 2)
    page = (await server.http.get(f"/runs/{run}/tasks/talk/attempts", params={"limit": 1})).json()
    assert (page["total"], len(page["items"])) == (2, 1)


async def test_an_output_is_read_once_there_is_one(server: Served, gate: asyncio.Event) -> None:
    """Of a mapped task, the list of its values."""
    waiting = (await start(server, "talking"))["id"]
    answer = await server.http.get(f"/runs/{waiting}/tasks/listen/output")
    assert (answer.status_code, answer.json()["code"]) == (409, "no_output")
    gate.set()
    run = await finish(server, day="x")
    assert (await server.http.get(f"/runs/{run}/tasks/load/output")).json()["output"] == {"sum": 6}
    assert (await server.http.get(f"/runs/{run}/tasks/clean/output")).json()["output"] == [0, 2, 4]
    element = (await server.http.get(f"/runs/{run}/tasks/clean/output", params={"index": 1})).json()
    assert element == {"task": "clean", "index": 1, "output": 2}


# -- logs


async def test_log_lines_are_listed_with_their_fields(server: Served, gate: asyncio.Event) -> None:
    gate.set()
    run = await finish(server, "talking")
    page = (await server.http.get(f"/runs/{run}/tasks/talk/logs")).json()
    assert [(one["message"], one["level"], one["attempt"]) for one in page["items"]] == [
        ("naïve 名前", "warning", 1),
        ("naïve 名前", "warning", 2),
        ("after the gate", "info", 2),
    ]
    assert page["items"][0]["fields"]["call"] == 1
    second = (await server.http.get(f"/runs/{run}/tasks/talk/logs", params={"attempt": 2})).json()
    assert (second["total"], second["items"]) == (2, page["items"][1:])
    seen, cursor = [], None
    while True:
        query = {"limit": "1"} | ({"cursor": cursor} if cursor else {})
        one = (await server.http.get(f"/runs/{run}/tasks/talk/logs", params=query)).json()
        seen += one["items"]
        if (cursor := one["next"]) is None:
            break
    assert seen == page["items"]


@pytest.mark.parametrize(("text", "found"), [("NAÏVE", 2), ("gate", 1), ("call", 2), ("nothing", 0), ("2", 1)])
async def test_a_log_is_searched(server: Served, gate: asyncio.Event, text: str, found: int) -> None:
    """S-8: streaming logs with search: in messages and fields, in letters of either case."""
    gate.set()
    run = await finish(server, "talking")
    path = f"/runs/{run}/tasks/talk/logs"
    page = (await server.http.get(path, params={"q": text})).json()
    assert (page["total"], len(page["items"])) == (found, found)
    assert len(await read_stream(server, f"{path}?q={text}")) == found


async def test_the_lines_of_all_elements_are_listed_or_those_of_one(server: Served) -> None:
    run = await finish(server, day="x")
    page = (await server.http.get(f"/runs/{run}/tasks/clean/logs")).json()
    assert [(one["message"], one["index"]) for one in page["items"]] == [("cleaned", 0), ("cleaned", 1), ("cleaned", 2)]
    (line,) = (await server.http.get(f"/runs/{run}/tasks/clean/logs", params={"index": 1})).json()["items"]
    assert (line["index"], line["stream"], line["fields"]) == (1, "log", {"row": 1})
    events = await read_stream(server, f"/runs/{run}/tasks/clean/logs")
    assert await read_stream(server, f"/runs/{run}/tasks/clean/logs", last_event_id=str(events[0][0])) == events[1:]


async def test_a_log_is_followed_until_the_task_ends_and_resumed(server: Served, gate: asyncio.Event) -> None:
    """http.md: Last-Event-ID resumes without a gap, also while the task runs."""
    run = (await start(server, "talking"))["id"]
    path = f"/runs/{run}/tasks/talk/logs"
    async with server.http.stream("GET", path, headers={"accept": "text/event-stream"}) as answer:
        lines = answer.aiter_lines()
        received = [await anext(lines) for _ in range(3)]
    last_id = received[0].removeprefix("id: ")
    rest, _ = await asyncio.gather(read_stream(server, path, last_event_id=last_id), open_gate(gate))
    assert [data["message"] for _, _, data in rest] == ["naïve 名前", "after the gate"]
    whole = await read_stream(server, path)
    assert [data["attempt"] for _, _, data in whole] == [1, 2, 2]
    assert whole[1:] == rest
    only = await read_stream(server, f"{path}?attempt=1")
    assert [data["attempt"] for _, _, data in only] == [1]


@pytest.mark.parametrize("event_id", ["%", "kgEC", "kZIBkwHPAAABAAAAAAAC"])
async def test_an_id_of_another_stream_is_refused(server: Served, event_id: str) -> None:
    run = await finish(server, day="x")
    headers = {"accept": "text/event-stream", "last-event-id": event_id}
    answer = await server.http.get(f"/runs/{run}/tasks/load/logs", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_event_id")
