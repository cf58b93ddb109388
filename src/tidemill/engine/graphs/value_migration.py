"""Converts values that outlive a hot swap to the types that the newer version declares."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, get_args, get_origin

import msgspec

from tidemill.annotations.codec import encode_msgpack
from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.annotations.variants import union_members
from tidemill.engine.graphs.unread_state import UnreadState, find_lost_fields
from tidemill.graphs.definition import StateUpgrade
from tidemill.graphs.outcomes import to_jsonable
from tidemill.kernel.author_errors import AUTHOR_ERRORS

_ATOMS = frozenset([str, bytes, int, float, bool, type(None)])
"""The types of values that hold nothing of a version."""


class ValueMigrator:
    """Converts values of an older version to the declared type. Never raises: a value that does not fit is None.

    What does not fit, and fields that the declared type does not have, are recorded in `unread`.
    """

    def __init__(
        self,
        annotation: Any,
        unread: UnreadState | None = None,
        what: str = "a value",
        upgrade: StateUpgrade | None = None,
    ) -> None:
        self._annotation = annotation
        self._unread = UnreadState() if unread is None else unread
        self._what = what
        self._upgrade = upgrade

    def __call__(self, value: Any) -> Any:
        """Return a value unchanged if it has the declared type, else rebuilt as that type; None if it does not fit."""
        try:
            if self._upgrade is None and self._element_migrator is not None and isinstance(value, list):
                migrated = self._element_migrator.migrate_fitting(value)
                return migrated if len(migrated) == len(value) else None
            return self._migrate(value)
        except AUTHOR_ERRORS as error:  # author code: a class may raise anything for a value
            self._unread.add_unfit(self._what, str(error).partition("\n")[0])
            return None

    def migrate_or_describe(self, value: Any) -> Any:
        """Return a value as the declared type, or as a plain value if it does not fit; atoms stay as they are."""
        if type(value) in _ATOMS:
            return value
        return to_jsonable(value) if (migrated := self(value)) is None else migrated

    def migrate_fitting(self, values: Iterable[Any]) -> list[Any]:
        """Return the values that fit, converted, in their order."""
        return [migrated for value in values if (migrated := self(value)) is not None]

    def _migrate(self, value: Any) -> Any:
        try:
            return self._validator.validate(value)
        except TypeMismatchError:
            return self._rebuild(value)

    def _rebuild(self, value: Any) -> Any:
        """Return a value of an older class as one of the declared class, upgraded if something of it would be lost."""
        namesake = self._validators_by_class.get(type(value).__name__, self._validator)
        try:
            migrated = namesake.validate(msgspec.to_builtins(value))
        except AUTHOR_ERRORS:  # author code: a class may raise anything for a value
            if self._upgrade is None:
                raise
            return self._upgrade(msgspec.msgpack.decode(encode_msgpack(value)))
        if fields := find_lost_fields(value, migrated):
            if self._upgrade is not None:
                return self._upgrade(msgspec.msgpack.decode(encode_msgpack(value)))
            self._unread.add_fields(self._what, fields)
        return migrated

    @cached_property
    def _validator(self) -> TypeValidator:
        return TypeValidator(self._annotation)

    @cached_property
    def _validators_by_class(self) -> dict[str, TypeValidator]:
        """The declared classes by name, to find the right member of a union of plain classes."""
        return {
            part.__name__: TypeValidator(part) for part in union_members(self._annotation) if isinstance(part, type)
        }

    @cached_property
    def _element_migrator(self) -> "ValueMigrator | None":
        """Converts the elements of a list; None if the annotation is not a list."""
        arguments = get_args(self._annotation) if get_origin(self._annotation) is list else ()
        return ValueMigrator(arguments[0], self._unread, self._what) if arguments else None
