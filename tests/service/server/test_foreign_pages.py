"""Web pages of other sites cannot use a server on this machine."""

import pytest

import tidemill as tm
from tests.service.server.serving_node import served


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"origin": "https://evil.example"}, "foreign_origin"),
        ({"origin": "null"}, "foreign_origin"),
        ({"origin": "http://["}, "foreign_origin"),
        ({"host": "["}, "foreign_host"),
        ({"host": "evil.example"}, "foreign_host"),
        ({"host": "127.0.0.1.evil.example:80"}, "foreign_host"),
    ],
)
async def test_a_server_without_authentication_refuses_foreign_pages(headers: dict[str, str], code: str) -> None:
    """F93: another origin, or a name that was rebound to this address."""
    async with tm.Node() as node, served(node) as server:
        answer = await server.http.get("/me", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, code)


async def test_a_page_of_the_server_itself_is_allowed() -> None:
    """The UI and the documentation come from the same origin."""
    async with tm.Node() as node, served(node) as server:
        assert (await server.http.get("/me", headers={"origin": server.url})).status_code == 200
