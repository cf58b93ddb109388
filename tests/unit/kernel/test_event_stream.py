"""The format text/event-stream, by the rules of the HTML standard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.event_stream import EventStreamParser, ServerEvent

LIMIT = 100


def parse(*chunks: bytes) -> list[ServerEvent]:
    parser = EventStreamParser(LIMIT)
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"data: 1\n\n", [ServerEvent("message", b"1", None)]),
        (b"data:1\r\n\r\n", [ServerEvent("message", b"1", None)]),
        (b"data: a\ndata:  b\nid: 7\nevent: price\n\n", [ServerEvent("price", b"a\n b", "7")]),
        (b": a comment\n\ndata: 1\n\n", [ServerEvent("message", b"1", None)]),
        (b"\xef\xbb\xbfdata: 1\n\n", [ServerEvent("message", b"1", None)]),
        (b"data\n\n", [ServerEvent("message", b"", None)]),
        (b"event: price\n\ndata: 1\n\n", [ServerEvent("message", b"1", None)]),
        (b"id: 9\n\n", [ServerEvent("", b"", "9")]),
        (b"id: 9\0\ndata: 1\n\n", [ServerEvent("message", b"1", None)]),
        (b"unknown: x\ndata: 1\n\n", [ServerEvent("message", b"1", None)]),
        (b"data: no end\n", []),
        (b"data: 1\r\r", [ServerEvent("message", b"1", None)]),
        (b"id:\ndata: 1\n\n", [ServerEvent("message", b"1", "")]),
    ],
)
def test_events_are_read_as_the_standard_says(text: bytes, expected: list[ServerEvent]) -> None:
    assert parse(text) == expected


def test_the_pause_that_a_server_wants_is_in_seconds() -> None:
    parser = EventStreamParser(LIMIT)
    parser.feed(b"retry: 250\n\n")
    assert parser.retry == 0.25
    parser.feed(b"retry: soon\n\n")
    assert parser.retry == 0.25


LINES = st.sampled_from(
    [b"data: 1", b"data", b"id: 4", b"event: e", b": note", b"", b"", b"retry: 10", b"data: " + b"x" * 2 * LIMIT]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS)), st.lists(st.integers(1, 30)))
def test_it_does_not_matter_how_a_stream_is_cut_into_parts(lines: list[tuple[bytes, bytes]], sizes: list[int]) -> None:
    text = b"".join(line + end for line, end in lines) + b"\ndata: end\n\n"
    chunks, rest = [], text
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    assert parse(*chunks, rest) == parse(*(bytes([byte]) for byte in text))


def test_an_event_that_is_too_large_is_cut_and_the_next_is_whole() -> None:
    """Memory stays bounded, and a dead letter shows the beginning."""
    chunks = [b"id: 1\ndata: ", *[b"x" * 60] * 50, b"\n\n", *[b"data: " + b"y" * 60 + b"\n"] * 50, b"\ndata: 3\n\n"]
    first, second, third = parse(*chunks)
    assert len(first.data) <= 2 * LIMIT
    assert len(second.data) <= 2 * LIMIT
    assert third.data == b"3"
