"""An operation: the fields of its requests, and what is derived from them."""

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

import tidemill as tm
from scripts.typed_client import render_module
from tidemill.access.principal import Permission, Principal, Role
from tidemill.api.errors import InvalidRequestError
from tidemill.api.fields import Seconds
from tidemill.api.keys import create_key
from tidemill.api.local import LocalApi
from tidemill.api.operation import POST, operation
from tidemill.api.pools import set_pool
from tidemill.api.services import Services
from tidemill.api.variables import set_variable
from tidemill.client.calls import to_call
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.kernel.errors import RequestError

Wait = Annotated[Seconds | None, Meta(description="How long to wait.")]


@operation(POST("/letters"), Permission.WRITE, audit="letter.send")
async def send_letter(
    services: Services,
    caller: Principal,
    text: str,
    size: Literal["small", "large"] = "small",
    reader: Role = Role.READ,
    wait: Wait = None,
    note: str | None = None,
) -> float:
    """Send a letter."""
    return 0.0 if wait is None else wait


def test_a_client_leaves_out_what_is_not_given() -> None:
    """A server that does not know an optional field yet would refuse it, and a body is easier to read without."""
    call = to_call(create_key, {"role": "read", "tenant": None, "expires": None, "only": None, "label": ""})
    assert msgspec.json.decode(call.content or b"") == {"role": "read", "label": ""}


def test_a_client_sends_null_where_it_is_a_value() -> None:
    """A field without a default may be null: a variable, for example."""
    call = to_call(set_variable, {"name": "limit", "value": None})
    assert call.content == b'{"value":null}'


@pytest.mark.parametrize("duration", ["1h30m", 5400, timedelta(minutes=90)])
def test_a_duration_is_seconds_on_the_wire(duration: Any) -> None:
    """Python code gives it as it likes."""
    assert send_letter.to_wire({"text": "hello", "wait": duration}) == {"text": "hello", "wait": 5400.0}


async def test_an_operation_gets_seconds() -> None:
    """Its annotation says so: nothing is left to convert."""
    async with tm.Node() as node:
        api = LocalApi(node.services, LOCAL_PRINCIPAL)
        assert await api.call(send_letter, {"text": "hello", "wait": "1h30m"}) == 5400.0
        with pytest.raises(RequestError, match="wait: 'soon' is not a duration"):
            await api.call(send_letter, {"text": "hello", "wait": "soon"})


async def test_an_unknown_field_is_an_error_that_names_it() -> None:
    """Through both doors: it would be lost otherwise."""
    with pytest.raises(InvalidRequestError, match=r"set_pool has no field `slot` .did you mean 'slots'") as refused:
        to_call(set_pool, {"name": "db", "slot": 3})
    assert [one.path for one in refused.value.facts["errors"]] == ["slot"]
    async with tm.Node() as node:
        with pytest.raises(InvalidRequestError, match="no field `slot`"):
            await LocalApi(node.services, LOCAL_PRINCIPAL).call(set_pool, {"name": "db", "slot": 3})


def test_the_method_of_a_client_has_a_readable_signature() -> None:
    """Members of enumerations by their names, literals as they are, durations as people give them."""
    written = " ".join(render_module([send_letter]).split())
    assert (
        'async def send_letter( self, text: str, *, size: Literal["small", "large"] = "small", '
        "reader: Role | str = Role.READ, wait: Duration | None = None, note: str | None = None, ) -> float:" in written
    )
    assert "from tidemill.access.principal import Role" in written
    assert "from tidemill.kernel.durations import Duration" in written
