"""Tokens of remote attempts: `tma_<secret>`. Each opens the calls of one attempt, and only while that is current."""

import re

from tidemill.access.tokens import SECRET_LENGTH, new_secret

_PREFIX = "tma_"
_TOKEN = re.compile(rf"{_PREFIX}[0-9A-Za-z]{{{SECRET_LENGTH}}}")


def new_attempt_token() -> str:
    """Return a new token."""
    return _PREFIX + new_secret()


def is_attempt_token(text: str) -> bool:
    """Return whether a text has the form of a token of an attempt."""
    return _TOKEN.fullmatch(text) is not None
