"""The one run that a client may have already: it is answered with its ETag."""

from typing import Annotated

from litestar import Response
from litestar.params import FromPath, QueryParameter

from tidemill.api import runs
from tidemill.api.etags import has_etag
from tidemill.api.runs import RunDetails
from tidemill.server.requests import ApiRequest, ApiResponse

_WithOutputs = Annotated[bool, QueryParameter(description="Whether tasks have their outputs, and their elements.")]


async def get_run(request: ApiRequest, run: FromPath[str], outputs: _WithOutputs = False) -> Response[RunDetails]:
    """Return a run with the states of its tasks.

    With `outputs` the tasks have their return values, and mapped tasks their elements: then the answer has
    everything of tm.RunResult. The ETag changes with the run.
    """
    services, known = request.node.services, request.headers.get("if-none-match")
    if known is not None:  # mostly nothing has changed: the tasks, maybe many, are not read
        etag = await runs.read_etag(services, request.user, run)
        if has_etag(known, etag):
            return ApiResponse(None, status_code=304, headers={"etag": etag})
    answer = await runs.get_run(services, request.user, run, outputs=outputs)
    return ApiResponse(answer, headers={"etag": answer.etag})
