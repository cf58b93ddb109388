"""Workflows: what is declared, in which versions, and the start of their runs."""

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody

from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.responses import ApiResponse
from tidemill.server.routes.runs import read_run
from tidemill.server.routing import BASE_PATH
from tidemill.server.views.runs import RunDetails


class StartRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The params of a new run, and a note on it."""

    params: Annotated[dict[str, Any], msgspec.Meta(examples=[{"day": "2026-01-05"}])] = {}
    note: Annotated[str | None, msgspec.Meta(examples=["asked for by finance"])] = None


_WITHOUT_PARAMS = StartRun()
"""The body of a request without one."""


async def start_run(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], data: JSONBody[StartRun] = _WITHOUT_PARAMS
) -> Response[RunDetails]:
    """Start a run of a workflow."""
    client = context.node.workflow_client
    run = await client.start(caller, name, data.params)
    if data.note:
        await client.note(caller, run, data.note)
    location = f"{BASE_PATH}/runs/{run}"
    return ApiResponse(await read_run(client, caller, run), status_code=201, headers={"location": location})
