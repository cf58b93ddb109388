"""Requests cannot write lines of their own into the log, nor control a terminal that shows it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

import tidemill as tm
from tests.service.server.serving_node import served
from tidemill.telemetry.logs import JsonFormatter, PlainFormatter

HOSTILE = "a%0a%7b%22level%22%3a%22error%22%7d%0d%1b%5b31mred"
"""A path with line breaks, a forged record, and an escape sequence."""


@pytest.fixture(params=[JsonFormatter, PlainFormatter])
def log(request: pytest.FixtureRequest) -> Iterator["logging.StreamHandler[io.StringIO]"]:
    """Everything that Tidemill logs, in one of its formats."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(request.param())
    logger = logging.getLogger("tidemill")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


async def test_a_hostile_path_stays_inside_its_line(log: "logging.StreamHandler[io.StringIO]") -> None:
    """F94: line breaks and escape sequences are escaped in every format."""
    async with tm.Node() as node, served(node) as server:
        await server.http.get(f"/workflows/{HOSTILE}")
        await server.http.get(f"/{HOSTILE}")
    text = log.stream.getvalue()
    assert "request.answered" in text
    assert "\x1b" not in text
    assert "\r" not in text
    assert not [line for line in text.splitlines() if line.startswith('{"level"')]
    if isinstance(log.formatter, JsonFormatter):
        assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
