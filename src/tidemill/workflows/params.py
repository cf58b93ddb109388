"""Encodes the params of a run for the store, and decodes them.

Params are stored as a map by name, each value as msgpack. A workflow that declares no params takes any storable value;
its type is not known then, so a date comes back as a string and an object as a dict.
"""

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from tidemill.annotations.codec import UnstorableError, encode_msgpack
from tidemill.annotations.variants import label
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.kernel.limits import make_storable
from tidemill.kernel.suggestions import did_you_mean

_EXAMPLES: dict[Any, str] = {
    datetime: "2026-01-31T06:00:00+01:00",
    date: "2026-01-31",
    time: "06:00:00",
    timedelta: "90 (seconds) or PT1M30S",
}


def encode_params(
    params_class: type[msgspec.Struct] | None,
    given: Mapping[str, Any] | msgspec.Struct,
    *,
    context: Mapping[str, Any] | None = None,
    from_text: bool = False,
) -> bytes:
    """Return params in their stored form; raise one RequestError that names every problem.

    An instance of the class is stored as it is. `context` has values that are stored with the params, for `ctx[...]`.
    Values are converted by msgspec's rules, such as "2026-01-01" for a date. With `from_text`, as on a command line,
    every value is a string: "5" is a number where one is expected, and JSON is parsed where a container is.
    """
    reader = _ParamReader(from_text)
    if isinstance(given, msgspec.Struct) and params_class is not None and isinstance(given, params_class):
        values = reader.read_instance(given)
    else:  # an instance of another class is one of an older version's
        given = msgspec.structs.asdict(given) if isinstance(given, msgspec.Struct) else given
        values = reader.read_undeclared(given) if params_class is None else reader.read_declared(params_class, given)
    if context and not (params_class and params_class.__struct_config__.forbid_unknown_fields):
        values = reader.read_undeclared(context) | values
    if not reader.problems:
        return encode_msgpack({name: msgspec.Raw(value) for name, value in values.items()})
    message = "; ".join(reader.problems.values())
    raise RequestError(f"invalid params: {message}", code="invalid_params", status=400, params=reader.problems)


def decode_params(params_class: type[msgspec.Struct] | None, stored: bytes) -> Any:
    """Return stored params as an instance of their class, or as a dict if the workflow declares none."""
    if params_class is None:
        return msgspec.msgpack.decode(stored, type=dict[str, Any])
    try:
        raw = msgspec.msgpack.decode(stored, type=dict[str, msgspec.Raw])
        known = {one.name: one for one in fields(params_class) if one.name in raw}
        return params_class(**{name: msgspec.msgpack.decode(raw[name], type=one.type) for name, one in known.items()})
    except AUTHOR_ERRORS as error:  # author code: a class may reject a value with any error
        raise OperationError(f"stored params no longer fit {label(params_class)}: {describe(error)}") from error


class _ParamReader:
    """Reads the params of one run and collects the problems, by name."""

    def __init__(self, from_text: bool) -> None:
        self.problems: dict[str, str] = {}
        self._from_text = from_text

    def read_undeclared(self, given: Mapping[str, Any]) -> dict[str, bytes]:
        """Return all given params, encoded."""
        read = {}
        for name, value in given.items():
            if isinstance(name, str) and name == make_storable(name):
                read[name] = _parse_undeclared(value) if self._from_text else value
            else:
                self.problems[ascii(name)] = f"{name!r} cannot be the name of a param: it is not a valid Unicode string"
        return self._encode(read)

    def read_instance(self, params: msgspec.Struct) -> dict[str, bytes]:
        """Return the fields of params that were built already, encoded."""
        return self._encode({one.name: getattr(params, one.name) for one in fields(params)})

    def read_declared(self, params_class: type[msgspec.Struct], given: Mapping[str, Any]) -> dict[str, bytes]:
        """Return every declared param, encoded; missing ones get their defaults."""
        known = {one.name: one for one in fields(params_class)}
        for name in given:
            if name not in known:
                has = f"; there are {', '.join(map(repr, known))}" if known else "; there are none"
                self.problems[make_storable(str(name))] = (
                    f"there is no param {name!r}{did_you_mean(str(name), known) or has}"
                )
        read: dict[str, Any] = {}
        for name, field in known.items():
            if name in given:
                self._convert(field, given[name], read)
            elif field.required:
                self.problems[name] = f"'{name}' ({label(field.type)}) is missing"
        if self.problems:
            return {}
        try:
            whole = params_class(**read)
        except AUTHOR_ERRORS as error:  # author code: `__post_init__` may reject values of the right type
            self.problems[""] = f"{label(params_class)} refuses them: {describe(error)}"
            return {}
        return self._encode({name: getattr(whole, name) for name in known})

    def _convert(self, field: FieldInfo, value: Any, read: dict[str, Any]) -> None:
        try:
            read[field.name] = _convert_value(value, field.type, self._from_text)
        except AUTHOR_ERRORS as error:  # author code: a class may reject a value with any error
            message = str(error) if isinstance(error, msgspec.ValidationError) else describe(error)
            self.problems[field.name] = (
                f"'{field.name}' takes {label(field.type)}: {message}{_example_hint(field.type)}"
            )

    def _encode(self, values: Mapping[str, Any]) -> dict[str, bytes]:
        encoded = {}
        for name, value in values.items():
            try:
                encoded[name] = encode_msgpack(value)
            except UnstorableError as error:
                self.problems[name] = f"'{name}': {error}"
        return encoded


def _convert_value(value: Any, kind: Any, from_text: bool) -> Any:
    if from_text and kind is Any:
        return _parse_undeclared(value)
    try:
        return msgspec.convert(value, kind, strict=not from_text)
    except msgspec.ValidationError as error:
        if not (from_text and isinstance(value, str)):
            raise
        try:
            return msgspec.json.decode(value, type=kind, strict=False)
        except msgspec.DecodeError as inner:
            if not value.lstrip().startswith(("{", "[")):
                raise error from None  # the value is not JSON: report the string as it was given
            if isinstance(inner, msgspec.ValidationError):
                raise  # it names the part of the JSON that does not fit
            raise msgspec.ValidationError(f"{value!r} is not JSON: {inner}") from None


def _example_hint(kind: Any) -> str:
    """Return an example of a type whose name does not show how to write a value."""
    for one in get_args(kind) if isinstance(kind, UnionType) or get_origin(kind) is Union else (kind,):
        if isinstance(one, type) and issubclass(one, Enum):
            return f"; it is one of {', '.join(repr(member.value) for member in one)}"
        if get_origin(one) is Literal:
            return f"; it is one of {', '.join(map(repr, get_args(one)))}"
        if one in _EXAMPLES:
            return f"; for example {_EXAMPLES[one]}"
    return ""


def _parse_undeclared(value: Any) -> Any:
    """Return an undeclared param from a command line: parsed as JSON if it is valid JSON, else the string."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except msgspec.DecodeError:
        return value
