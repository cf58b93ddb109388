"""Operations that nodes ask each other for: their requests and answers pass between nodes, also of two versions."""

import enum
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill.engine.forwarding.wire import decode_answer, decode_push, encode_error, encode_result
from tidemill.engine.graphs.client.keyed_operations import KeyedOperations
from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.engine.graphs.client.part_operations import HOST_OPERATIONS, PART_OPERATIONS, PartOperation
from tidemill.graphs.outcomes import Receipt, Rejection
from tidemill.graphs.pushes import ProducerPosition, PushSummary, ReceiptRun
from tidemill.kernel.errors import NotFoundError, RequestError

ALL_OPERATIONS = [
    pytest.param(one, id=f"{owner} {one.name}")
    for owner, table in (("part", PART_OPERATIONS), ("host", HOST_OPERATIONS))
    for one in table.values()
]

PUSH = PART_OPERATIONS["push"]


# -- what the stores of older versions have

RECORDED_REQUESTS: list[tuple[PartOperation[..., Any], bytes, dict[str, Any]]] = [
    (
        PUSH,
        b"\x86\xa6tenant\xa6public\xa4name\xa1a\xa5event\xc4\x012\xa8encoding\xa4json\xa8patience\xcb@\x14\x00\x00\x00"
        b"\x00\x00\x00\xa8position\x82\xa6client\xa1c\xa8sequence\x07",
        {
            "tenant": "public",
            "name": "a",
            "event": b"2",
            "encoding": "json",
            "patience": 5.0,
            "position": ProducerPosition("c", 7),
        },
    ),
    (
        PART_OPERATIONS["push_many"],
        b"\x86\xa6tenant\xa6public\xa4name\xa1a\xa6events\x93\x01\xa1y\x02\xa8encoding\xa4json\xa8position\xc0"
        b"\xa8patience\xc0",
        {
            "tenant": "public",
            "name": "a",
            "events": [1, "y", 2],
            "encoding": "json",
            "position": None,
            "patience": None,
        },
    ),
    (
        PART_OPERATIONS["command"],
        b"\x85\xa6tenant\xa6public\xa4name\xa1r\xa7command\xa9fire_with\xa6inputs\x81\xa1a\x04\xa3key\xc0",
        {"tenant": "public", "name": "r", "command": "fire_with", "inputs": {"a": 4}, "key": None},
    ),
    (
        HOST_OPERATIONS["command"],
        b"\x83\xa6tenant\xa6public\xa4name\xa6orders\xa7command\xa5pause",
        {"tenant": "public", "name": "orders", "command": "pause"},
    ),
    (
        HOST_OPERATIONS["firings"],
        b"\x83\xa6tenant\xa6public\xa4name\xa6orders\xa5limit\x01",
        {"tenant": "public", "name": "orders", "limit": 1},
    ),
    (
        HOST_OPERATIONS["mark_source"],
        b"\x83\xa6tenant\xa6public\xa4name\xa6placed\xa7is_lost\xc2",
        {"tenant": "public", "name": "placed", "is_lost": False},
    ),
]

RECORDED_ANSWERS: list[tuple[PartOperation[..., Any], bytes, Any]] = [
    (
        PUSH,
        b"\x82\xa6result\x82\xa8receipts\xc4\x0f\x91\x96\xc3\xa7emitted\xc0\x01\x01\xc0\xacis_duplicate\xc2"
        b"\xa5error\xc0",
        Receipt(True, 1, "emitted"),
    ),
    (
        PART_OPERATIONS["push_many"],
        b"\x82\xa6result\x82\xa8receipts\xc4\x0f\x91\x96\xc3\xa7emitted\xc0\x02\x01\xc0\xacis_duplicate\xc3"
        b"\xa5error\xc0",
        PushSummary((ReceiptRun(True, "emitted", None, 2, 1),), is_duplicate=True),
    ),
    (PART_OPERATIONS["last_position"], b"\x82\xa6result\x07\xa5error\xc0", 7),
    (PART_OPERATIONS["drop"], b"\x82\xa6result\xc0\xa5error\xc0", None),
    (HOST_OPERATIONS["drop"], b"\x82\xa6result\xc2\xa5error\xc0", False),
    (HOST_OPERATIONS["last_positions"], b"\x82\xa6result\x92\xc0\x07\xa5error\xc0", [None, 7]),
]

RECORDED_ERROR = (
    b"\x82\xa6result\xc0\xa5error\x85\xa4kind\xadNotFoundError\xa7message\xd9\"reactor 'r' has no accumulator 'b'"
    b"\xa4code\xb5accumulator_not_found\xa6status\xcd\x01\x94\xa5facts\x82\xabaccumulator\xa1b\xabsuggestions\x90"
)


@pytest.mark.parametrize(("operation", "payload", "fields"), RECORDED_REQUESTS)
def test_a_request_of_an_older_version_is_read(
    operation: PartOperation[..., Any], payload: bytes, fields: dict[str, Any]
) -> None:
    """G-31: during an upgrade, nodes of two versions run on one store."""
    assert operation.decode(payload) == fields


@pytest.mark.parametrize(("operation", "payload", "fields"), RECORDED_REQUESTS)
def test_an_older_version_reads_a_request(
    operation: PartOperation[..., Any], payload: bytes, fields: dict[str, Any]
) -> None:
    """G-31: it gets the same values, and uses its defaults for the fields that are left out."""
    before, now = (msgspec.msgpack.decode(one) for one in (payload, operation.encode(**fields)))
    left_out = before.keys() - now.keys()
    assert before == now | {name: before[name] for name in left_out}
    assert operation.decode(operation.encode(**fields)) == fields


@pytest.mark.parametrize(("operation", "payload", "answer"), RECORDED_ANSWERS)
def test_answers_have_the_form_of_older_versions(
    operation: PartOperation[..., Any], payload: bytes, answer: Any
) -> None:
    """G-31."""
    assert decode_answer(payload, operation.answer_type) == answer
    assert encode_result(answer) == payload


def test_errors_have_the_form_of_older_versions() -> None:
    """G-13, G-31."""
    with pytest.raises(NotFoundError, match="has no accumulator 'b'") as raised:
        decode_answer(RECORDED_ERROR, PART_OPERATIONS["command"].answer_type)
    assert encode_error(raised.value) == RECORDED_ERROR


def test_the_names_of_requests_stay() -> None:
    """G-31: an owner of another version must know them. A name may be added, and none renamed."""
    assert " ".join(PART_OPERATIONS) == (
        "check_reactor reactor_state listed_state observe health_report firings timeseries courses recoveries "
        "command check_accumulator accumulator_state accumulator restart_accumulator push push_many relay batch_space "
        "last_position dead_letters dead_letter replay drop"
    )
    assert " ".join(HOST_OPERATIONS) == (
        "states health_report firings timeseries courses recoveries command accumulators restart_accumulator "
        "mark_source last_positions dead_letters dead_letter replay drop"
    )


# -- every operation


@cache
def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the plain values of a type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return st.none() | st.integers(-(2**40), 2**40) | st.text(max_size=5) | st.lists(st.booleans(), max_size=2)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (list, Sequence):
        return st.lists(values(arguments[0]), max_size=3)
    if origin in (dict, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    if origin is tuple:
        return st.lists(values(arguments[0]), min_size=1, max_size=3).map(tuple)
    if annotation in PRIMITIVES:
        return PRIMITIVES[annotation]
    if issubclass(annotation, msgspec.Struct):
        hints = get_type_hints(annotation)
        names = [one.name for one in msgspec.structs.fields(annotation)]
        return st.builds(annotation, **{name: values(hints[name]) for name in names})
    assert issubclass(annotation, enum.Enum), annotation
    return st.sampled_from(annotation)


PRIMITIVES: dict[Any, st.SearchStrategy[Any]] = {
    None: st.none(),
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers(0, 2**60),
    float: st.floats(allow_nan=False),
    str: st.text(st.characters(exclude_categories=["C"]), max_size=8),  # what a store can hold
    datetime: st.datetimes(timezones=st.just(UTC)),
}


@pytest.mark.parametrize("operation", ALL_OPERATIONS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_requests_and_answers_arrive_as_they_were_sent(operation: PartOperation[..., Any], data: Any) -> None:
    """G-31: every field of a request, and every answer."""
    hints = get_type_hints(operation.request_type)
    fields = {name: data.draw(values(hint), label=name) for name, hint in hints.items()}
    assert operation.decode(operation.encode(**fields)) == fields
    answer = data.draw(values(operation.answer_type), label="answer")
    assert decode_answer(encode_result(answer), operation.answer_type) == answer


def test_a_rejection_stays_a_rejection() -> None:
    """G-12: with its code, by which a caller knows whether it may push again."""
    rejection = Rejection(False, 3, "rejected", "the queue is full", "queue_full")
    assert decode_answer(encode_result(rejection), PUSH.answer_type) == rejection


@pytest.mark.parametrize("name", ["push", "push_many"])
def test_what_was_pushed_before_is_answered_as_a_push(name: str) -> None:
    """G-24: the receipts of a push that was committed and not answered, as the store keeps them."""
    receipts = msgspec.msgpack.encode([ReceiptRun(True, "emitted", None, 1, 1)])
    answer = decode_push(receipts, PART_OPERATIONS[name].answer_type)
    assert answer == (Receipt(True, 1, "emitted") if name == "push" else PushSummary.of([Receipt(True, 1, "emitted")]))


def test_a_field_that_has_its_default_is_not_sent() -> None:
    """G-31: so that a field which a later version adds stops no request to an older node."""
    assert msgspec.msgpack.decode(PUSH.encode("public", "a", 1)) == {"tenant": "public", "name": "a", "event": 1}


def test_a_field_that_this_version_does_not_have_is_refused() -> None:
    """It may be what matters: a request is served as it was meant, or not at all."""
    with pytest.raises(msgspec.ValidationError, match="unknown field `urgent`"):
        PUSH.decode(msgspec.msgpack.encode({"tenant": "public", "name": "a", "event": 1, "urgent": True}))


def test_a_value_that_cannot_be_sent_is_refused() -> None:
    """G-31: the caller gets the error, and no node the request."""
    with pytest.raises(RequestError, match="the value cannot be sent there") as raised:
        PUSH.encode("public", "a", object())
    assert raised.value.code == "invalid_value"


# -- the classes that carry operations out


def test_keyed_reactors_have_every_operation_of_reactors() -> None:
    """With the same fields and answers; only partitions are brought the events of a source."""
    for name in PART_OPERATIONS.keys() - {"relay"}:
        assert form(getattr(KeyedOperations, name)) == form(getattr(GraphOperations, name)), name


def form(method: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """Return the parameters of a method and its result, with their types."""
    signature = inspect.signature(method)
    parameters = [(one.name, one.kind, one.default, one.annotation) for one in signature.parameters.values()]
    return [*parameters, ("return", signature.return_annotation)]


def test_an_operation_on_another_node_has_the_name_of_its_request() -> None:
    """G-31: `remote.push` asks for "push"."""
    for table in (PART_OPERATIONS, HOST_OPERATIONS):
        assert {name: one.name for name, one in table.items()} == {name: name for name in table}
