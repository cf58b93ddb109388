"""The API against generated requests: whatever comes in, every answer is one that the OpenAPI document promises."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from tests.system.server_process import ServerProcess, server_process
from tidemill.server.openapi import openapi_document
from tidemill.server.route_table import ROUTES

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDLESS = "GET /api/v1/events"
"""A stream without an end."""

# From the table of routes: the document takes a second to make, in each process that only collects tests.
LABELS = [
    f"{route.method} {route.path.replace(':str}', '}')}"
    for route in ROUTES
    if not route.is_page and route.method != "WEBSOCKET"
]


@cache
def operations() -> dict[str, Any]:
    """Return the operations of the document by label."""
    schema = schemathesis.openapi.from_dict(json.loads(openapi_document()))
    return {operation.label: operation for operation in (found.ok() for found in schema.get_all_operations())}


def modes(operation: Any) -> list[GenerationMode]:
    """Return which requests there are: only one with a body or parameters can be wrong."""
    takes_anything = bool(list(operation.body) or list(operation.iter_parameters()))
    return list(GenerationMode) if takes_anything else [GenerationMode.POSITIVE]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the examples, so that names that exist can be met."""
    folder = tmp_path_factory.mktemp("fuzz")
    options = ("--no-auth", "--packages", str(EXAMPLES), "--pool", "warehouse=1")
    with server_process(f"sqlite:///{folder}/tidemill.db", *options) as one:
        one.wait_until_ready()
        yield one


def test_every_operation_of_the_document_is_tested() -> None:
    """S-7: the table of routes and the document have the same operations."""
    assert sorted(operations()) == sorted(LABELS)


@pytest.mark.parametrize("label", [label for label in LABELS if label != ENDLESS])
def test_every_answer_is_one_of_the_documented(server: ServerProcess, label: str) -> None:
    """S-7: no request is a server error, and statuses and media types are those of the document."""
    operation = operations()[label]
    for mode in modes(operation):
        check_answers(server, operation, mode)


def check_answers(server: ServerProcess, operation: Any, mode: GenerationMode) -> None:
    """Send some requests of a kind."""

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(case=operation.as_strategy(generation_mode=mode))
    def requests(case: schemathesis.Case) -> None:
        answer = case.call(base_url=server.url, timeout=10)
        case.validate_response(answer, checks=[not_a_server_error, status_code_conformance, content_type_conformance])
        assert answer.headers["x-request-id"]

    requests()
