"""Keys of partitioned reactors: how they are read from events, their stored form, and the partition of each.

A key is text, a whole number, bytes, or a tuple of them. The partition of a key is the same on every host and in every
version of Python, and the same as in a Kafka topic to which a producer writes with this key and as many partitions.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, is_typeddict

import msgspec

from tidemill.annotations.validation import TypeMismatchError
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.suggestions import did_you_mean

Key = Any
"""`str | int | bytes`, or a tuple of them."""
KeyFunction = Callable[[Any], Key]
"""Returns the key of a validated event."""
KeyOption = KeyFunction | str | Mapping[Any, KeyFunction | str]
"""One function or field for all accumulators of a reactor, or one for each, by accumulator or by its name."""

DEFAULT_PARTITIONS = 16
MAX_PARTITIONS = 1024
MAX_KEY_SIZE = 1024
"""Of the stored form, in bytes: databases index it."""
_SHORT_TEXT = 256  # characters that always fit
PLAIN_CLASSES = frozenset([str, int, bytes])
"""A key of one of these classes that equals a valid key is the same key. True and 1.0 are not, though they equal 1."""
_WORDS = "a key is text, a whole number of 64 bits, bytes, or a tuple of them"
_MURMUR_SEED, _MURMUR_FACTOR, _WORD_MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


class InvalidKeyError(TypeMismatchError):
    """An event has no key that can be used; the event becomes a dead letter."""


# -- the form of a key


def encode_key(key: Key) -> bytes:
    """Return the stored form of a key. Different keys have different forms."""
    return msgspec.msgpack.encode(key)


def decode_key(stored: bytes) -> Key:
    """Return a key from its stored form."""
    return to_tuples(msgspec.msgpack.decode(stored))


def check_key(key: Key) -> Key:
    """Return a key as plain values, or raise InvalidKeyError."""
    plain = _to_plain(key)
    try:
        size = len(encode_key(plain))
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidKeyError(f"{key!r} cannot be a key: {error}; {_WORDS}") from error
    if size > MAX_KEY_SIZE:
        raise InvalidKeyError(f"a key of {size} bytes is too long: {MAX_KEY_SIZE} are allowed")
    return plain


def _to_plain(key: Key) -> Key:
    """Return the value of an enumeration or a named tuple, which must be the same key as the value itself."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, int) and not isinstance(key, bool):  # True would be the same key as 1
        return int(key)
    if isinstance(key, bytes):
        return bytes(key)
    if isinstance(key, tuple) and key:
        return tuple(_to_plain(one) for one in key)
    if key is None:
        raise InvalidKeyError(f"the event has no key: the key function returned None; {_WORDS}")
    raise InvalidKeyError(f"{key!r} cannot be a key; {_WORDS}")


def is_plain_tuple(key: Any) -> bool:
    """Return whether a key is a tuple of plain values: (True, "a") would be the same key as (1, "a")."""
    return key.__class__ is tuple and all(one.__class__ in PLAIN_CLASSES or is_plain_tuple(one) for one in key)


def to_tuples(value: Any) -> Any:
    """Return a decoded key as it was: formats without tuples have lists."""
    return tuple(map(to_tuples, value)) if isinstance(value, list) else value


# -- partitions


_PARTITION = re.compile(r"(?P<name>.+)\[(?P<number>\d+)\]", re.DOTALL)


class PartitionId(NamedTuple):
    """A partition: the reactor or accumulator that it is a part of, and its number.

    As text, `market[3]`, it is the name of the partition in the store and between nodes.
    """

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}[{self.number}]"

    @classmethod
    def parse(cls, text: str) -> "PartitionId | None":
        """Read the name of a partition; None for the name of anything else."""
        match = _PARTITION.fullmatch(text)
        return None if match is None else cls(match["name"], int(match["number"]))


def partition_of(key: Key, partitions: int) -> int:
    """Return the number of the partition that holds a key, from 0."""
    return (murmur2(partitioned_bytes(key)) & 0x7FFFFFFF) % partitions


def partitioned_bytes(key: Key) -> bytes:
    """Return the bytes that decide the partition: of text and bytes, and of numbers as text, those that Kafka has."""
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    return str(key).encode() if isinstance(key, int) else encode_key(key)


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash by which Kafka's producers choose a partition, unsigned."""
    whole = len(data) & ~3
    result = _MURMUR_SEED ^ len(data)
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MURMUR_FACTOR & _WORD_MASK
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _WORD_MASK
        result = (result * _MURMUR_FACTOR & _WORD_MASK) ^ word
    if whole < len(data):
        result = (result ^ int.from_bytes(data[whole:], "little")) * _MURMUR_FACTOR & _WORD_MASK
    result = (result ^ result >> 13) * _MURMUR_FACTOR & _WORD_MASK
    return result ^ result >> 15


# -- reading the key of an event


class KeyReader:
    """Reads the key of a validated event, or raises InvalidKeyError."""

    __slots__ = ("attribute", "unchecked")

    def __init__(self, unchecked: KeyFunction, attribute: str | None = None) -> None:
        self.unchecked = unchecked
        """The author's function, or the getter of a field."""
        self.attribute = attribute
        """The attribute that the getter reads, if it reads one."""

    def __call__(self, event: Any) -> Key:
        try:
            key = self.unchecked(event)
        except AUTHOR_ERRORS as error:
            if isinstance(error, InvalidKeyError):
                raise
            raise InvalidKeyError(f"the key function raised {describe(error)}") from error
        if key.__class__ is str and len(key) <= _SHORT_TEXT and key.isascii():
            return key
        return check_key(key)


def build_key_reader(option: KeyOption, accumulator: str, event_type: Any) -> KeyReader:
    """Return the reader of the keys of one accumulator's events."""
    if isinstance(option, Mapping):
        named = {getattr(given, "name", given): one for given, one in option.items()}
        if accumulator not in named:
            return KeyReader(_no_key(accumulator))
        option = named[accumulator]
    if isinstance(option, str):
        is_mapping = getattr(event_type, "__origin__", event_type) is dict or is_typeddict(event_type)
        return KeyReader(itemgetter(option)) if is_mapping else KeyReader(attrgetter(option), option)
    return KeyReader(option)


def _no_key(accumulator: str) -> KeyFunction:
    def read_key(event: Any) -> Key:  # noqa: ARG001 - every event is refused
        raise InvalidKeyError(f"the reactor's key= names no function for '{accumulator}': only nodes feed it")

    return read_key


# -- checking the declaration


def key_problems(option: Any, partitions: Any, accumulators: Collection[str], windows: Collection[str]) -> list[str]:
    """Return what is wrong with `key=` and `partitions=`; windows need no key, because nodes feed them."""
    if option is None:
        return [] if partitions is None else ["partitions= needs key=, which says to what partition an event belongs"]
    problems = []
    if partitions is not None and (type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS):
        problems.append(f"partitions is a whole number from 1 to {MAX_PARTITIONS}, not {partitions!r}")
    if not isinstance(option, Mapping):
        return problems + _function_problems(option, "key")
    named = {getattr(given, "name", given): one for given, one in option.items()}
    problems += [
        f"key names {name!r}, which is not among its accumulators {list(accumulators)}"
        f"{did_you_mean(str(name), accumulators)}"
        for name in named
        if name not in accumulators
    ]
    problems += [
        f"key has no function for the accumulator '{name}'"
        for name in accumulators
        if name not in named and name not in windows
    ]
    return problems + [
        problem for name, one in named.items() for problem in _function_problems(one, f"key of '{name}'")
    ]


def _function_problems(option: Any, what: str) -> list[str]:
    if isinstance(option, str) and option.isidentifier():
        return []
    if not callable(option):
        return [f"{what} is a function of the event or the name of one of its fields, not {option!r}"]
    if inspect.iscoroutinefunction(option):
        return [f"{what} is an async function: the key of an event is read without waiting, so use a plain one"]
    return [] if _takes_one_argument(option) else [f"{what} is a function of one argument, the event"]


def _takes_one_argument(function: KeyFunction) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a function in C that does not say
        return True
    return True


def key_field_problem(option: KeyOption, accumulator: str, event_type: Any) -> str | None:
    """Return what is wrong with the name of a field, if the type of the events says which fields they have."""
    if isinstance(option, Mapping):
        option = {getattr(given, "name", given): one for given, one in option.items()}.get(accumulator, "")
    if not isinstance(option, str) or not option:
        return None
    names = _field_names(event_type)
    if names is None or option in names or hasattr(event_type, option):
        return None
    message = f"key names the field '{option}', which the events of '{accumulator}' do not have: {sorted(names)}"
    return f"{message}{did_you_mean(option, names)}"


def _field_names(event_type: Any) -> Collection[str] | None:
    """Return the fields of a struct, a data class, a named tuple or a typed dictionary; None for any other type."""
    if is_typeddict(event_type):
        return tuple(event_type.__annotations__)
    if not isinstance(event_type, type):
        return None
    if is_dataclass(event_type):
        return tuple(one.name for one in fields(event_type))
    found: Collection[str] | None = getattr(event_type, "__struct_fields__", None) or getattr(
        event_type, "_fields", None
    )
    return found
