"""Values that outlive a hot swap: as the type that the newer version declares, if they fit it."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, get_args, get_origin

import msgspec

from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.annotations.variants import union_members
from tidemill.kernel.author_errors import AUTHOR_ERRORS


class ValueMigrator:
    """Makes values of an older version what a newer one declares. It never raises: what does not fit is None."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def __call__(self, value: Any) -> Any:
        """Return a value as the declared type: untouched if it is one, else rebuilt; None if it does not fit."""
        try:
            if self._element_migrator is not None and isinstance(value, list):
                migrated = self._element_migrator.migrate_fitting(value)
                return migrated if len(migrated) == len(value) else None
            return self._migrate(value)
        except AUTHOR_ERRORS:  # author code: a class may refuse a value in its own way
            return None

    def migrate_fitting(self, values: Iterable[Any]) -> list[Any]:
        """Return those of many values that fit, in their order."""
        return [migrated for value in values if (migrated := self(value)) is not None]

    def _migrate(self, value: Any) -> Any:
        try:
            return self._validator.validate(value)
        except TypeMismatchError:
            namesake = self._validators_by_class.get(type(value).__name__, self._validator)
            return namesake.validate(msgspec.to_builtins(value))

    @cached_property
    def _validator(self) -> TypeValidator:
        return TypeValidator(self._annotation)

    @cached_property
    def _validators_by_class(self) -> dict[str, TypeValidator]:
        """The declared classes by name: a union of plain classes cannot tell otherwise which one a value was."""
        return {
            part.__name__: TypeValidator(part) for part in union_members(self._annotation) if isinstance(part, type)
        }

    @cached_property
    def _element_migrator(self) -> "ValueMigrator | None":
        """How to migrate the elements of a list, which says nothing about itself."""
        arguments = get_args(self._annotation) if get_origin(self._annotation) is list else ()
        return ValueMigrator(arguments[0]) if arguments else None
