"""Limits of names, integers and texts that every store can hold. Other values are rejected where they are declared."""

from collections.abc import Iterable

from tidemill.kernel.errors import RequestError

MAX_INTEGER = 2**31 - 1
"""The largest integer that a store keeps in a column."""
LISTED_VALUE_LIMIT = 16 * 1024
"""Bytes of the largest value that lists show, such as the params of a run; a larger one only the item itself has."""
MAX_TEXT_LENGTH = 10_000
"""The length of the longest note or reason in characters: lists show them."""
MAX_WORD_LENGTH = 200
"""The length of the longest word in characters."""


class DefaultConcurrency(int):
    """The number of slots that a node has if its user names none; a number that was named is a plain int."""


DEFAULT_CONCURRENCY = DefaultConcurrency(8)
COROUTINE_SLOTS = 16
"""Slots for coroutines by default: as many as runs of a workflow are active by default, so that none waits."""

WORD_RULE = f"a text of 1 to {MAX_WORD_LENGTH} characters that can be printed, without blanks around it"
NAME_RULE = f"{WORD_RULE}, and without '/'"
LABEL_RULE = f"{WORD_RULE}, and without ','"


def is_word(value: object) -> bool:
    """Return whether a value can be printed and stored everywhere as a word, such as a tag or a pool."""
    return (
        isinstance(value, str) and 0 < len(value) <= MAX_WORD_LENGTH and value.isprintable() and value == value.strip()
    )


def is_name(value: object) -> bool:
    """Return whether a value can name a tenant or what it owns: a word that stays unambiguous in `tenant/name`."""
    return is_word(value) and "/" not in str(value)


def parse_labels(values: Iterable[object]) -> tuple[str, ...]:
    """Return labels of workers in order, each once; ValueError for one that is ambiguous in `--labels gpu,eu`."""
    labels = list(values)
    for one in labels:
        if not is_word(one) or "," in str(one):
            raise ValueError(f"a label is {LABEL_RULE}, not {one!r}")
    return tuple(sorted({str(one) for one in labels}))


def validate_tenant(name: str) -> str:
    """Return the name of a tenant; RequestError for one that is ambiguous in `tenant/name`."""
    if not is_name(name) or name == "*":  # "*" stands for every tenant
        raise RequestError(f"a tenant's name is {NAME_RULE}, not {name!r}", code="invalid_tenant")
    return name


def is_storable(value: object) -> bool:
    """Return whether a value is a text that every store can hold unchanged; stored keys are always such texts."""
    return isinstance(value, str) and make_storable(value) == value


def make_storable(text: str) -> str:
    """Return a text with NUL and lone surrogates, which some store cannot hold, replaced."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "backslashreplace").decode()
