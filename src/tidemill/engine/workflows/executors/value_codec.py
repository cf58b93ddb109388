"""Encodes and decodes the values that tasks pass on."""

import inspect
from typing import Any, get_args, get_origin

import msgspec

from tidemill.annotations.codec import Codec, UnstorableError, build_codec
from tidemill.annotations.validation import TypeMismatchError
from tidemill.annotations.variants import Variant, expand_variants, label
from tidemill.engine.workflows.executors.interface import EncodedItem, Input, ItemOfList, ListInput
from tidemill.workflows.attempt_results import Succeeded
from tidemill.workflows.steps import ENCODED_NONE

_ROUND_TRIP_TYPES = (bool, int, float, str, bytes)
"""Annotations whose values survive encoding unchanged if they are exactly of that class: decoding need not be tried."""


class ValueCodec:
    """Encodes and decodes the values of one task, and finds the variant of each."""

    def __init__(self, task: str, returns: Any) -> None:
        self._task = task
        self._returns = returns
        self._variants = expand_variants(returns)
        self._labels = {variant.cls: variant.label for variant in reversed(self._variants or ())}
        self._round_trip_type: type | None = next((cls for cls in _ROUND_TRIP_TYPES if returns is cls), None)
        self._split_list: tuple[bytes, list[bytes]] = b"", []
        try:
            self._codec: Codec | None = build_codec(returns)
        except UnstorableError as error:
            self._codec, self._codec_error = None, str(error)
        self._item_codec = self._build_item_codec()

    def _build_item_codec(self) -> Codec | None:
        """Return the codec of one element, if the task returns a list whose elements are encoded one by one."""
        args = get_args(self._returns)
        is_list = get_origin(self._returns) is list or (get_origin(self._returns) is tuple and args[1:] == (...,))
        return build_codec(args[0]) if is_list and args and self._codec is not None else None

    def encode_result(self, value: Any) -> Succeeded:
        """Return an encoded value; UnstorableError or TypeMismatchError if it cannot be stored."""
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
            raise TypeMismatchError(
                f"task '{self._task}' returned a coroutine that was not awaited: declare the task `async def`, and "
                "return `await ...`"
            )
        variant = self._labels.get(value.__class__) or self._find_variant(value)
        if value is None:
            return Succeeded(ENCODED_NONE, variant)
        if self._codec is None:
            raise UnstorableError(f"task '{self._task}' returned a value that cannot be stored: {self._codec_error}")
        try:
            encoded = self._codec.encode(value)
            if value.__class__ is not self._round_trip_type:
                self._codec.decode(encoded)  # a value that cannot be decoded fails this task, not the next one
        except UnstorableError as error:
            raise UnstorableError(f"task '{self._task}' returned a value that cannot be stored: {error}") from error
        except TypeMismatchError as error:
            raise self._mismatch_error(value, str(error)) from error
        return Succeeded(encoded, variant, len(value) if isinstance(value, list | tuple) else None)

    def _find_variant(self, value: Any) -> str | None:
        """Return the variant of a value that is of no declared class itself."""
        if self._variants is None:
            return None
        for variant in self._variants:
            if _matches_variant(value, variant):
                return variant.label
        raise self._mismatch_error(value)

    def _mismatch_error(self, value: Any, reason: str = "") -> TypeMismatchError:
        returned = "None" if value is None else f"a value of class {type(value).__name__}"
        message = f"task '{self._task}' returned {returned}, but declares {label(self._returns)}"
        return TypeMismatchError(f"{message}: {reason}" if reason else message)

    def decode_input(self, encoded: Input) -> Any:
        """Return a new value for a downstream task."""
        if isinstance(encoded, ListInput):
            return [self.decode(one) for one in encoded.values]
        if isinstance(encoded, ItemOfList):
            return self._decode_item(encoded)
        if isinstance(encoded, EncodedItem) and self._item_codec is not None:
            return self._item_codec.decode(encoded.value)
        return self.decode(encoded.value)

    def _decode_item(self, encoded: ItemOfList) -> Any:
        item = self.extract_item(encoded)
        if isinstance(item, EncodedItem):
            return self.decode_input(item)
        return self.decode(encoded.value)[encoded.number]

    def extract_item(self, encoded: Input) -> Input:
        """Return the element of a list input, if elements are encoded one by one; any other input is unchanged."""
        if self._item_codec is None or not isinstance(encoded, ItemOfList):
            return encoded
        if self._split_list[0] is not encoded.value:  # many attempts are mapped over one list: split it once
            items = [bytes(item) for item in msgspec.msgpack.decode(encoded.value, type=_RAW_LIST)]
            self._split_list = encoded.value, items
        return EncodedItem(self._split_list[1][encoded.number])

    def decode(self, data: bytes) -> Any:
        """Return a new value from its stored form."""
        if data == ENCODED_NONE or self._codec is None:
            return None
        try:
            return self._codec.decode(data)
        except TypeMismatchError as error:
            message = f"the value of task '{self._task}' cannot be decoded as {label(self._returns)}: {error}"
            raise TypeMismatchError(message) from error


_RAW_LIST = list[msgspec.Raw]


def _matches_variant(value: Any, variant: Variant) -> bool:
    return isinstance(value, variant.cls) or (variant.cls is float and isinstance(value, int))
