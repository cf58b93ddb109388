"""Encodes values as msgpack, and decodes them with the declared annotation.

msgpack holds no classes, so a value of a union is stored with the name of its variant. A value that the annotation does
not name could not be decoded as it was; it is rejected when it is stored, not when it is needed.
"""

from collections.abc import Collection, Iterable
from typing import Any, Protocol, get_args, get_origin

import msgspec

from tidemill.annotations.validation import TypeMismatchError
from tidemill.annotations.variants import label, runtime_classes, union_members
from tidemill.kernel.author_errors import AUTHOR_ERRORS

ENCODER = msgspec.msgpack.Encoder()
_SELF_DESCRIBING_TYPES = frozenset([bool, int, float, str, bytes, list, dict])
"""Classes whose values can be decoded without an annotation."""


class UnstorableError(ValueError):
    """A value, or every value of an annotation, could not be decoded after a restart."""


class Codec(Protocol):
    """Encodes and decodes values of one annotation."""

    schema: Any
    """A JSON-able description that changes when stored values would be incompatible."""

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes; UnstorableError if it could not be decoded."""

    def decode(self, data: bytes) -> Any:
        """Return the encoded value; TypeMismatchError if the bytes do not fit the annotation."""


def build_codec(annotation: Any) -> Codec:
    """Return the codec of an annotation; UnstorableError if its values cannot be stored."""
    parts = union_members(annotation)
    if any(runtime_classes(part) is None for part in parts):
        return _UntypedCodec()
    try:
        return _MsgspecCodec(annotation, _build_schema(annotation))
    except (TypeError, NotImplementedError) as error:  # msgspec raises both for types that it does not know
        if len(parts) > 1:
            return _UnionCodec(parts)
        if get_origin(annotation) is list and get_args(annotation):
            return _ListCodec(build_codec(get_args(annotation)[0]))
        raise UnstorableError(f"{label(annotation)} is not a type that can be stored") from error


def _build_schema(annotation: Any) -> Any:
    """Return the schema of an annotation, in which classes of the same name are numbered in their order.

    msgspec distinguishes them by the names of their modules, which change with every load of a package.
    """
    schema = msgspec.json.schema(annotation)
    names = [name for name in schema.get("$defs", ()) if "." in name]
    if not names:
        return schema
    text = msgspec.json.encode(schema).decode()
    for number, name in enumerate(names):
        text = text.replace(f'"{name}"', f'"{number}"').replace(f'/{name}"', f'/{number}"')
    return msgspec.json.decode(text)


def encode_msgpack(value: Any) -> bytes:
    """Return a value as bytes; UnstorableError if msgspec cannot encode it."""
    try:
        return ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnstorableError(f"{_type_with_article(value)} cannot be stored: {_first_line(error)}") from error


class _MsgspecCodec(Codec):
    """The codec of an annotation that msgspec supports."""

    def __init__(self, annotation: Any, schema: Any) -> None:
        self.schema = schema
        self._decoder = msgspec.msgpack.Decoder(annotation)

    encode = staticmethod(encode_msgpack)

    def decode(self, data: bytes) -> Any:
        try:
            return self._decoder.decode(data)
        except AUTHOR_ERRORS as error:  # author code: a class may raise anything for an invalid value
            raise TypeMismatchError(_first_line(error)) from error


class _UntypedCodec(_MsgspecCodec):
    """The codec without an annotation, or with one that admits everything: only self-describing values are stored."""

    def __init__(self) -> None:
        super().__init__(Any, {})

    def encode(self, value: Any) -> bytes:
        if value.__class__ not in _SELF_DESCRIBING_TYPES:
            raise UnstorableError(
                f"{_type_with_article(value)} cannot be stored under an annotation that does not name it; "
                "annotate it, or use a bool, int, float, str, bytes, list or dict"
            )
        return super().encode(value)


class _UnionCodec(Codec):
    """The codec of a union whose members msgspec cannot distinguish: stores the name of the variant too."""

    def __init__(self, parts: Iterable[Any]) -> None:
        self._codecs = {label(part): build_codec(part) for part in parts}
        self._classes = [(cls, label(part)) for part in parts for cls in runtime_classes(part) or ()]
        self.schema = {name: codec.schema for name, codec in self._codecs.items()}

    def encode(self, value: Any) -> bytes:
        name = self._variant_name(value)
        return ENCODER.encode((name, msgspec.Raw(self._codecs[name].encode(value))))

    def _variant_name(self, value: Any) -> str:
        for cls, name in self._classes:
            if value.__class__ is cls:
                return name
        for cls, name in self._classes:
            if isinstance(value, cls):
                return name
        raise UnstorableError(f"{_type_with_article(value)} is none of {', '.join(self._codecs)}")

    def decode(self, data: bytes) -> Any:
        try:
            name, raw = msgspec.msgpack.decode(data, type=tuple[str, msgspec.Raw])
        except msgspec.DecodeError as error:
            raise TypeMismatchError(_first_line(error)) from error
        if name not in self._codecs:
            raise TypeMismatchError(f"{name} is none of {', '.join(self._codecs)}")
        return self._codecs[name].decode(bytes(raw))


class _ListCodec(Codec):
    """The codec of a list whose elements each need the name of their variant."""

    def __init__(self, element: Codec) -> None:
        self._element_codec = element
        self.schema = [element.schema]

    def encode(self, value: Any) -> bytes:
        return ENCODER.encode([msgspec.Raw(self._element_codec.encode(one)) for one in value])

    def decode(self, data: bytes) -> Any:
        try:
            elements = msgspec.msgpack.decode(data, type=list[msgspec.Raw])
            return [self._element_codec.decode(bytes(raw)) for raw in elements]
        except msgspec.DecodeError as error:
            raise TypeMismatchError(_first_line(error)) from error


def decode_untyped(data: bytes, variant: str | None) -> Any:
    """Decode a stored value without its annotation into builtins, without the names of variants.

    `variant` is the label of the value's annotation, or of the union member that the value belongs to.
    """
    value = msgspec.msgpack.decode(data)
    if _is_tagged(value, [variant]):
        return value[1]
    parts = (variant or "").removeprefix("list[").removesuffix("]").split(" | ")
    names = [one.rpartition(".")[2] for one in parts]  # inside a list, labels include modules
    if len(names) > 1 and isinstance(value, list) and all(_is_tagged(one, names) for one in value):
        return [one[1] for one in value]
    return value


def _is_tagged(value: Any, names: Collection[str | None]) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and value[0] in names


def _type_with_article(value: Any) -> str:
    """Return the class name of a value with its article: "a Thread", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
