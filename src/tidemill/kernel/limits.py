"""What every store can hold: names, whole numbers and texts. Whatever it could not is refused where it is declared."""

from tidemill.kernel.errors import RequestError

MAX_INTEGER = 2**31 - 1
"""The largest whole number that a store keeps in a column."""
MAX_WORD_LENGTH = 200
"""Characters of the longest word."""

WORD_RULE = f"a text of 1 to {MAX_WORD_LENGTH} characters that can be printed, without blanks around it"
NAME_RULE = f"{WORD_RULE}, and without '/'"


def is_word(value: object) -> bool:
    """Return whether something can be told, printed and stored by everybody as a word, such as a tag or a pool."""
    return (
        isinstance(value, str) and 0 < len(value) <= MAX_WORD_LENGTH and value.isprintable() and value == value.strip()
    )


def is_name(value: object) -> bool:
    """Return whether something can be the name of a tenant, or of what it owns: a word, whole in `tenant/name`."""
    return is_word(value) and "/" not in str(value)


def validate_tenant(name: str) -> str:
    """Return the name of a tenant; RequestError for one that could not be told apart in `tenant/name`."""
    if not is_name(name):
        raise RequestError(f"a tenant's name is {NAME_RULE}, not {name!r}", code="invalid_tenant")
    return name


def is_storable(value: object) -> bool:
    """Return whether something is a text that every store can hold as it is: nothing stored has any other for a key."""
    return isinstance(value, str) and make_storable(value) == value


def make_storable(text: str) -> str:
    """Return a text without what some store cannot hold, which is NUL and half characters: people say anything."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "backslashreplace").decode()
