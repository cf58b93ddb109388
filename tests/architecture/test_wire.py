"""The wire below /api/v1 only gains additions."""

import json
from typing import Any

import pytest

from scripts.wire import PAGE, describe_wire, find_losses, render

KEPT = {
    "GET /things": {
        "request": {"path name!": "string", "query limit": "integer"},
        "answers": {"200": {"-": "object", "items": "array", "items[].size": "null|number"}},
    },
    "POST /things": {
        "request": {"body -!": "object", "body name!": "string", "body label": "null|string"},
        "answers": {"201": {"-": "object", "id": "string"}},
    },
}


def test_nothing_on_the_wire_is_lost() -> None:
    """Rule 7: paths, parameters and fields of answers stay, and no request must have more than before."""
    kept, now = json.loads(PAGE.read_text(encoding="utf-8")), describe_wire()
    assert find_losses(kept, now) == []
    assert render(now) == render(kept), "there are additions: run `make api`"


def _changed(request: str, part: str, **fields: str | None) -> Any:
    wire = json.loads(json.dumps(KEPT))
    place = wire[request]["request"] if part == "request" else wire[request]["answers"][part]
    for name, types in fields.items():
        if types is None:
            del place[name]
        else:
            place[name] = types
    return wire


@pytest.mark.parametrize(
    ("now", "loss"),
    [
        ({"GET /things": KEPT["GET /things"]}, "POST /things is gone"),
        (_changed("GET /things", "request", **{"query limit": None}), "GET /things: query limit is not taken"),
        (
            _changed("GET /things", "request", **{"query limit": None, "query limit!": "integer"}),
            "GET /things: query limit is required now",
        ),
        (_changed("GET /things", "request", **{"query kind!": "string"}), "GET /things: query kind is required now"),
        (_changed("GET /things", "200", items=None), "GET /things: items of the answer 200 is gone"),
        (
            _changed("GET /things", "200", **{"items[].size": "null|string"}),
            "GET /things: items[].size of the answer 200 is null|string, not null|number",
        ),
        (_changed("POST /things", "201", id="null|string"), "POST /things: id of the answer 201 is null|string"),
        (
            _changed("POST /things", "request", **{"body label": None, "body label!": "string"}),
            "POST /things: body label is required now",
        ),
        (
            _changed("POST /things", "request", **{"body label": "string"}),
            "POST /things: body label takes string, not null|string",
        ),
        (_changed("POST /things", "request", **{"body size!": "integer"}), "POST /things: body size is required now"),
    ],
)
def test_losses_are_found(now: Any, loss: str) -> None:
    """A sentence for each."""
    assert any(one.startswith(loss) for one in find_losses(KEPT, now)), find_losses(KEPT, now)


@pytest.mark.parametrize(
    "now",
    [
        {**KEPT, "GET /others": {"request": {"query kind!": "string"}, "answers": {}}},
        _changed("GET /things", "request", **{"query kind": "string", "query limit": "integer|string"}),
        _changed("GET /things", "200", **{"items[].label": "string", "items[].size": "integer"}),
        _changed("POST /things", "request", **{"body more": "object", "body more.name!": "string"}),
        _changed("POST /things", "request", **{"body name!.part": "string"}),
    ],
)
def test_additions_are_no_losses(now: Any) -> None:
    """New requests, new parameters that may be left out, wider ones, and new fields of answers."""
    assert find_losses(KEPT, now) == []
