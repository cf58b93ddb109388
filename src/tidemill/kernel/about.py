"""Owners and descriptions of definitions: whom to ask about one, and what it is for."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

OWNER_LIMIT = 200
DESCRIPTION_LIMIT = 4000


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whom to ask about a definition, and what it is for."""

    owner: str = ""
    """A team or a person, as the author writes it."""
    description: str = ""
    """Text of one or more paragraphs."""

    @classmethod
    def of_function(cls, function: Callable[..., Any], owner: str = "", description: str = "") -> "About":
        """Return what is declared of a function: without a description, its docstring is."""
        return cls(owner, clean_text(description) or _docstring(function))


def clean_text(text: str) -> str:
    """Return a description as it is shown: without the indentation of the code, and of limited length."""
    from tidemill.kernel.author_errors import shorten  # on use: help imports this module, and not asyncio

    return shorten(inspect.cleandoc(text), DESCRIPTION_LIMIT)


def _docstring(function: Callable[..., Any]) -> str:
    """Return the docstring of a function; "" for other callables: theirs would describe their class."""
    function = inspect.unwrap(function)
    text = function.__doc__ if inspect.isroutine(function) else None
    return clean_text(text) if isinstance(text, str) else ""


def read_owner(value: Any) -> str:
    """Return an owner as it was declared; raise TypeError if it is not a line of text."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > OWNER_LIMIT:
        raise TypeError(f"it is a line of text of at most {OWNER_LIMIT} characters, such as 'data team', not {value!r}")
    return value


def read_description(value: Any) -> str:
    """Return a description as it was declared; raise TypeError if it is not a text."""
    if not isinstance(value, str):
        raise TypeError(f"it is a text, not {value!r}")
    return value


def about_problems(owner: Any, description: Any) -> Iterator[str]:
    """Yield what is wrong with the options `owner=` and `description=`."""
    for name, read, value in (("owner", read_owner, owner), ("description", read_description, description)):
        try:
            read(value)
        except TypeError as error:
            yield f"{name}: {error}"
