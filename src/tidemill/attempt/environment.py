"""The environment of a unit: where the server is, and the token of the attempt."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import NamedTuple

from tidemill.engine.workflows.executors.remote.interface import (
    SERVER_URL_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
)
from tidemill.kernel.errors import OperationError


class AttemptEnvironment(NamedTuple):
    """The server and the token of an attempt."""

    url: str
    token: str


def take_environment(environment: MutableMapping[str, str]) -> AttemptEnvironment:
    """Return what the environment says, and remove the token from it: programs that the code starts do not need it."""
    url, token = environment.get(SERVER_URL_VARIABLE), environment.pop(TOKEN_VARIABLE, "")
    file = environment.pop(TOKEN_FILE_VARIABLE, "")
    if not token and file:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OperationError(f"{TOKEN_FILE_VARIABLE} names {file}, which cannot be read: {error}") from error
    if not url or not token:
        missing = SERVER_URL_VARIABLE if not url else f"{TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}"
        raise OperationError(f"the environment has no {missing}: an executor sets it for the units that it starts")
    return AttemptEnvironment(url, token)
