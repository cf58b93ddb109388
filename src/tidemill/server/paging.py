"""The parameters of requests for a page of a list."""

from typing import Annotated

from litestar.params import QueryParameter

from tidemill.api.paging import MAX_LIMIT

Limit = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT, description="The number of items of a page, 500 at most.")]
Cursor = Annotated[
    str | None, QueryParameter(description="`next` of the page before; absent for the first page.", required=False)
]
