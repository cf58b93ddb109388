"""Values as bytes and back: msgpack, with the declared annotation to say what comes back.

msgpack says nothing about classes, so a value of a union is stored with the name of its variant. What an annotation
does not name cannot come back as it was, and is refused when it is to be stored, not when it is needed.
"""

from collections.abc import Collection, Iterable
from typing import Any, Protocol, get_args, get_origin

import msgspec

from tidemill.annotations.validation import TypeMismatchError
from tidemill.annotations.variants import label, runtime_classes, union_members
from tidemill.kernel.author_errors import AUTHOR_ERRORS

ENCODER = msgspec.msgpack.Encoder()
_SELF_DESCRIBING_TYPES = frozenset([bool, int, float, str, bytes, list, dict])
"""What comes back as it was although nothing was declared."""


class UnstorableError(ValueError):
    """A value, or all values of an annotation, could not be read again after a restart."""


class Codec(Protocol):
    """How values of one annotation are stored."""

    schema: Any
    """What tells this annotation's stored values from another's, as plain values."""

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes, or raise UnstorableError."""

    def decode(self, data: bytes) -> Any:
        """Return the value that was encoded, or raise MisfitError."""


def build_codec(annotation: Any) -> Codec:
    """Return how values of an annotation are stored, or raise UnstorableError."""
    parts = union_members(annotation)
    if any(runtime_classes(part) is None for part in parts):
        return _UntypedCodec()
    try:
        return _MsgspecCodec(annotation, _build_schema(annotation))
    except (TypeError, NotImplementedError) as error:  # both are how msgspec says that it does not know a type
        if len(parts) > 1:
            return _UnionCodec(parts)
        if get_origin(annotation) is list and get_args(annotation):
            return _ListCodec(build_codec(get_args(annotation)[0]))
        raise UnstorableError(f"{label(annotation)} is not a type that can be stored") from error


def _build_schema(annotation: Any) -> Any:
    """Return the schema of an annotation, in which classes of one name are told apart by their order.

    msgspec does that by the names of their modules, which for a package are others with every load.
    """
    schema = msgspec.json.schema(annotation)
    names = [name for name in schema.get("$defs", ()) if "." in name]
    if not names:
        return schema
    text = msgspec.json.encode(schema).decode()
    for number, name in enumerate(names):
        text = text.replace(f'"{name}"', f'"{number}"').replace(f'/{name}"', f'/{number}"')
    return msgspec.json.decode(text)


class _MsgspecCodec(Codec):
    """An annotation that msgspec reads by itself."""

    def __init__(self, annotation: Any, schema: Any) -> None:
        self.schema = schema
        self._decoder = msgspec.msgpack.Decoder(annotation)

    def encode(self, value: Any) -> bytes:
        return encode_msgpack(value)

    def decode(self, data: bytes) -> Any:
        try:
            return self._decoder.decode(data)
        except AUTHOR_ERRORS as error:  # author code: a class may refuse a value in its own way
            raise TypeMismatchError(_first_line(error)) from error


class _UntypedCodec(_MsgspecCodec):
    """No annotation, or one that admits everything: only what needs no name comes back as it was."""

    def __init__(self) -> None:
        super().__init__(Any, {})

    def encode(self, value: Any) -> bytes:
        if value.__class__ not in _SELF_DESCRIBING_TYPES:
            raise UnstorableError(
                f"{_type_with_article(value)} cannot be stored under an annotation that does not name it; "
                "annotate it, or use a "
                "bool, int, float, str, bytes, list or dict"
            )
        return super().encode(value)


class _UnionCodec(Codec):
    """A union whose members msgspec cannot tell apart: stored with the name of the variant."""

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
    """A list whose elements need a name each."""

    def __init__(self, element: Codec) -> None:
        self._element_codec = element
        self.schema = [element.schema]

    def encode(self, value: Any) -> bytes:
        return ENCODER.encode([msgspec.Raw(self._element_codec.encode(one)) for one in value])

    def decode(self, data: bytes) -> Any:
        try:
            return [
                self._element_codec.decode(bytes(raw)) for raw in msgspec.msgpack.decode(data, type=list[msgspec.Raw])
            ]
        except msgspec.DecodeError as error:
            raise TypeMismatchError(_first_line(error)) from error


def decode_untyped(data: bytes, variant: str | None) -> Any:
    """Return a stored value without its annotation: plain values, without the names that tell variants apart.

    `variant` is the label of the annotation, or of that member of it, which the value is of.
    """
    value = msgspec.msgpack.decode(data)
    if _is_tagged(value, [variant]):
        return value[1]
    parts = (variant or "").removeprefix("list[").removesuffix("]").split(" | ")
    inner = [one.rpartition(".")[2] for one in parts]  # within a list they are named with their modules
    if len(inner) > 1 and isinstance(value, list) and all(_is_tagged(one, inner) for one in value):
        return [one[1] for one in value]
    return value


def _is_tagged(value: Any, names: Collection[str | None]) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and value[0] in names


def encode_msgpack(value: Any) -> bytes:
    """Return a value that msgspec knows as bytes, or raise UnstorableError."""
    try:
        return ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnstorableError(f"{_type_with_article(value)} cannot be stored: {_first_line(error)}") from error


def _type_with_article(value: Any) -> str:
    """Return what a value is, as one of its kind: "a Thread", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
