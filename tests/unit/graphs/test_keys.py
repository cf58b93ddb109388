"""Keys of partitioned reactors: their form, their partition, and how they are read from events."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.graphs.keys import (
    InvalidKeyError,
    build_key_reader,
    check_key,
    decode_key,
    encode_key,
    murmur2,
    partition_of,
)


class Trade(tm.Boundary):
    symbol: str
    price: float


class Limit(tm.Boundary):
    name: str


@tm.passthrough
def trades(event: Trade) -> Trade:
    return event


@tm.passthrough
def limits(event: Limit) -> Limit:
    return event


seen = tm.window("seen", Trade, capacity=3)

scalars = st.text(max_size=20) | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=20)
keys = st.recursive(scalars, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=4)


@given(keys, keys)
def test_a_key_comes_back_from_its_stored_form_which_is_its_own(one: Any, other: Any) -> None:
    assert decode_key(encode_key(one)) == one
    assert (encode_key(one) == encode_key(other)) is (one == other)


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafka_producers(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


def test_text_bytes_and_numbers_have_the_partition_that_a_kafka_producer_gives_them() -> None:
    assert partition_of("foobar", 16) == partition_of(b"foobar", 16) == (-790332482 & 0x7FFFFFFF) % 16
    assert partition_of(21, 12) == partition_of("21", 12) == (-973932308 & 0x7FFFFFFF) % 12


@given(keys, st.integers(1, 64), st.integers(1, 8))
def test_a_topic_with_a_multiple_of_the_partitions_follows_the_keys(key: Any, partitions: int, factor: int) -> None:
    assert partition_of(key, partitions * factor) % partitions == partition_of(key, partitions)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Pair(NamedTuple):
    symbol: str
    venue: int


def test_enumerations_and_named_tuples_are_the_keys_of_their_values() -> None:
    plain = [check_key(one) for one in (Colour.RED, Level.LOW, Pair("a", 1))]
    assert plain == ["red", 1, ("a", 1)]
    assert [type(one) for one in plain] == [str, int, tuple]


@pytest.mark.parametrize("key", [None, True, 1.5, [1], (), ("a", None), 2**64, "\ud800", "x" * 2000, object()])
def test_what_cannot_be_a_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidKeyError):
        check_key(key)


@pytest.mark.parametrize(
    ("option", "event_type", "event"),
    [
        (lambda event: event.symbol, Trade, Trade(symbol="ABC", price=1.0)),
        ("symbol", Trade, Trade(symbol="ABC", price=1.0)),
        ("symbol", dict, {"symbol": "ABC"}),
        ("symbol", dict[str, str], {"symbol": "ABC"}),
        ("symbol", TypedDict("Dictionary", {"symbol": str}), {"symbol": "ABC"}),  # type: ignore[operator]
        ({"trades": "symbol"}, Trade, Trade(symbol="ABC", price=1.0)),
        ({trades: lambda event: event.symbol}, Trade, Trade(symbol="ABC", price=1.0)),
    ],
)
def test_a_key_is_read_by_a_function_or_a_field(option: Any, event_type: Any, event: Any) -> None:
    assert build_key_reader(option, "trades", event_type)(event) == "ABC"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda event: event.nothing, "AttributeError"),
        (lambda event: None, "returned None"),
        (lambda event: [event], "cannot be a key"),
    ],
)
def test_an_event_without_a_key_says_why(function: Callable[[Any], Any], reason: str) -> None:
    with pytest.raises(InvalidKeyError, match=reason):
        build_key_reader(function, "trades", Trade)(Trade(symbol="ABC", price=1.0))


def test_a_keyed_reactor_has_sixteen_partitions_unless_it_says_otherwise() -> None:
    keyed = tm.Reactor("market", [trades], key="symbol")
    assert (keyed.is_keyed, keyed.partitions) == (True, 16)
    assert tm.Reactor("market", [trades], key="symbol", partitions=4).partitions == 4
    plain = tm.Reactor("market", [trades])
    assert (plain.is_keyed, plain.partitions) == (False, 1)


def test_a_polling_accumulator_with_a_running_state_has_no_key() -> None:
    @tm.polling(every="1s", state=Trade)
    async def polled(state: Trade) -> Trade:
        return state

    with pytest.raises(tm.DefinitionError, match="polling accumulator 'polled' has state="):
        tm.Reactor("market", [polled], key="symbol")


async def read_later(event: Trade) -> str:
    return event.symbol


class Quote(NamedTuple):
    """An event that is a named tuple."""

    symbol: str


class Order(TypedDict):
    """An event that is a typed dictionary."""

    symbol: str


@dataclass
class Fill:
    """An event that is a data class, with a key that it computes."""

    symbol: str

    @property
    def venue(self) -> str:
        return self.symbol[:2]


@pytest.mark.parametrize("event_type", [Trade, Quote, Order, Fill])
def test_a_misspelt_field_is_refused_with_a_suggestion(event_type: Any) -> None:
    @tm.passthrough
    def given(event: event_type) -> Any:
        return event

    tm.Reactor("market", [given], key="symbol").check_key_fields()
    tm.Reactor("market", [given], key=lambda event: event.anything).check_key_fields()
    for option in ("symbl", {given: "symbl"}):
        with pytest.raises(tm.DefinitionError, match=r"names the field 'symbl', .*did you mean 'symbol'"):
            tm.Reactor("market", [given], key=option).check_key_fields()


def test_a_key_may_be_a_property_of_the_event_or_a_field_of_an_unknown_type() -> None:
    @tm.passthrough
    def fills(event: Fill) -> Fill:
        return event

    @tm.passthrough
    def anything(event: Any) -> Any:
        return event

    tm.Reactor("market", [fills], key="venue").check_key_fields()
    tm.Reactor("market", [anything], key="venue").check_key_fields()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitions": 4}, "partitions= needs key="),
        ({"key": "symbol", "partitions": 0}, "partitions is a whole number from 1 to 1024, not 0"),
        ({"key": "symbol", "partitions": True}, "partitions is a whole number"),
        ({"key": 7}, "key is a function of the event or the name of one of its fields, not 7"),
        ({"key": "a b"}, "key is a function of the event"),
        ({"key": lambda: "A"}, "key is a function of one argument, the event"),
        ({"key": lambda event, other: "A"}, "key is a function of one argument, the event"),
        ({"key": read_later}, "key is an async function"),
        ({"key": {"trades": "symbol"}}, "key has no function for the accumulator 'limits'"),
        ({"key": {"trade": "symbol", "limits": "name"}}, "key names 'trade', which is not among its accumulators"),
        ({"key": {"trades": "symbol", "limits": None}}, "key of 'limits' is a function of the event"),
    ],
)
def test_a_key_that_cannot_work_is_refused_where_it_is_declared(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tm.DefinitionError) as raised:
        tm.Reactor("market", [trades, limits, seen], **options)
    assert message in str(raised.value)
