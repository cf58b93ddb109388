"""Pages of lists: items, the true total, and a cursor that survives inserts.

A cursor holds the sort key of the last item of its page, so the next page continues after that item, whatever was
inserted or deleted meanwhile.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec

from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import is_storable

DEFAULT_LIMIT = 50
MAX_LIMIT = 500

Item = TypeVar("Item")
Source = TypeVar("Source")


class PageRequest(NamedTuple):
    """Which part of a list a caller asks for."""

    limit: int = DEFAULT_LIMIT
    """The number of items, 500 at most."""
    cursor: str | None = None
    """`next` of the page before; None for the first page."""


class Page(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """A part of a list."""

    items: list[Item]
    total: int
    """The number of all items that match, on all pages."""
    next: str | None
    """The cursor of the next page; null on the last one."""


def encode_cursor(key: Any) -> str:
    """Return the cursor for the sort key of the last item of a page."""
    return urlsafe_b64encode(msgspec.msgpack.encode(key)).decode().rstrip("=")


def decode_cursor(cursor: str | None, kind: Any = str) -> Any:
    """Return the sort key of a cursor, None without one; RequestError if it is not a cursor of this list."""
    if cursor is None:
        return None
    try:
        key = msgspec.msgpack.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=kind)
    except (ValueError, msgspec.MsgspecError) as error:
        raise invalid_cursor_error() from error
    if not all(is_storable(one) for one in (key if isinstance(key, tuple) else [key]) if isinstance(one, str)):
        raise invalid_cursor_error()
    return key


def invalid_cursor_error() -> RequestError:
    """Return the error for a cursor that no page of a list has named."""
    return RequestError("this cursor is not one of this list", code="invalid_cursor")


def page_of(
    items: Sequence[Source],
    page: PageRequest,
    *,
    key: Callable[[Source], str],
    view: Callable[[Source], Item],
    descending: bool = False,
) -> Page[Item]:
    """Return a page of a short list that is in memory as a whole, in the order of a unique key."""
    after = decode_cursor(page.cursor)
    ordered = sorted(items, key=key, reverse=descending)
    rest = [one for one in ordered if after is None or (key(one) < after if descending else key(one) > after)]
    shown = rest[: page.limit]
    following = encode_cursor(key(shown[-1])) if len(rest) > page.limit else None
    return Page(items=[view(one) for one in shown], total=len(items), next=following)


def page_in_order(
    items: Sequence[Item], page: PageRequest, *, is_listed: Callable[[Item], bool] = lambda _: True
) -> Page[Item]:
    """Return a page of a list that is in memory in its own order, and grows only at its end.

    A cursor is a position among all items, so that an item that leaves the selection moves no other to another page.
    """
    start = decode_cursor(page.cursor, Annotated[int, msgspec.Meta(ge=0)]) or 0
    listed = [index for index, item in enumerate(items) if is_listed(item)]
    rest = [index for index in listed if index >= start]
    shown = rest[: page.limit]
    following = encode_cursor(shown[-1] + 1) if len(rest) > page.limit else None
    return Page(items=[items[index] for index in shown], total=len(listed), next=following)


def page_after(items: Sequence[Item], page: PageRequest, *, key: Callable[[Item], str]) -> Page[Item]:
    """Return a page of a list that is in memory in its own order, newest first, and loses only its oldest items."""
    after = decode_cursor(page.cursor)
    positions = {key(one): index for index, one in enumerate(items)}
    start = 0 if after is None else positions.get(after, len(items)) + 1
    shown = list(items[start : start + page.limit])
    following = encode_cursor(key(shown[-1])) if start + page.limit < len(items) else None
    return Page(items=shown, total=len(items), next=following)
