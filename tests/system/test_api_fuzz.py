"""The API against generated requests: whatever comes in, every answer is one that the OpenAPI document promises."""

import json
from collections.abc import Iterator
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

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDLESS = {"/api/v1/events"}
"""Streams without an end."""

SCHEMA = schemathesis.openapi.from_dict(json.loads(openapi_document()))


def takes_anything(operation: Any) -> bool:
    """Return whether an operation has a body or parameters, so that a request can be wrong."""
    return bool(list(operation.body) or list(operation.iter_parameters()))


OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the examples, so that names that exist can be met."""
    folder = tmp_path_factory.mktemp("fuzz")
    with server_process(f"sqlite:///{folder}/tidemill.db", "--no-auth", "--packages", str(EXAMPLES)) as one:
        yield one


CASES = [
    pytest.param(operation, mode, id=f"{operation.label} {mode.value}")
    for operation in OPERATIONS
    for mode in GenerationMode
    if operation.path not in ENDLESS and (mode is GenerationMode.POSITIVE or takes_anything(operation))
]


@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_every_answer_is_one_of_the_documented(server: ServerProcess, operation: Any, mode: GenerationMode) -> None:
    """S-7: no request is a server error, and statuses and media types are those of the document."""

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(case=operation.as_strategy(generation_mode=mode))
    def requests(case: schemathesis.Case) -> None:
        answer = case.call(base_url=server.url, timeout=10)
        case.validate_response(answer, checks=[not_a_server_error, status_code_conformance, content_type_conformance])
        assert answer.headers["x-request-id"]

    requests()
