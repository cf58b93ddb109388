"""Errors of PostgreSQL: whether a unit or the database is at fault, explained to operators.

Callers only ever see a StoreError that says what to do. Within a group of units, though, an error that one of them
caused itself stays as it is (a row that breaks a constraint, a value that no column can hold), so that the group
committer finds the faulty one.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import asyncpg
import msgspec
from msgspec.structs import astuple

from tidemill.kernel.errors import FullStoreError, StoreError
from tidemill.storage.queries import check_timezone

CONNECTION_LOST_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
DRIVER_ERRORS = (asyncpg.PostgresError, *CONNECTION_LOST_ERRORS)
RETRYABLE_ERRORS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)

# Classes of SQLSTATE: wrong data, broken constraints, limits of a row or statement.
_UNIT_ERROR_CLASSES = ("22", "23", "54")

_ADVICE = {
    "23505": "it already holds an entry that was to be new; make sure that no other node uses it",
    "25006": "it takes no writes: it is a standby or set to read-only; connect to the primary",
    "28000": "the server refuses this user; check the user in the URL and the server's pg_hba.conf",
    "28P01": "the server refuses the password; correct the user and password in the URL",
    "3D000": "the server has no database of this name; create it (CREATE DATABASE), or correct the URL",
    "42P07": "its schema 'tidemill' holds tables of another application; use another database",
    "42501": "the user may not do this; let the database's owner GRANT CREATE ON DATABASE, or use the owner",
    "53100": "the server's disk is full; free some space",
    "53300": "the server takes no more connections; raise max_connections, or stop other clients",
    "55P03": "another session held a lock for too long; find it in pg_locks",
    "57014": "a statement took too long and was cancelled; check the server's load",
    "57P01": "the server ended the connection; it is stopped or restarted",
    "57P02": "the server crashed and recovers",
    "57P03": "the server is starting up or shutting down",
}


def is_unit_error(error: Exception) -> bool:
    """Return whether a unit is at fault, rather than the database."""
    if isinstance(error, asyncpg.PostgresError):
        return str(error.sqlstate)[:2] in _UNIT_ERROR_CLASSES
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)  # the driver cannot encode it


def describe_error(error: Exception) -> str:
    """Return one sentence that says what happened and what to do."""
    if isinstance(error, asyncpg.PostgresError) and error.message:  # the driver's own have none
        advice = _ADVICE.get(error.sqlstate)
        return f"{advice} ({error.message})" if advice else f"{error.message} (SQLSTATE {error.sqlstate})"
    if isinstance(error, socket.gaierror):
        return "the host's name is unknown; correct the URL"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; start the server, or correct host and port in the URL"
    if isinstance(error, TimeoutError):
        return "it did not answer in time; check the network and the server's load"
    return f"the connection was lost ({error})"


@contextmanager
def translating_errors(title: str, units: int = 1) -> Iterator[None]:
    """Translate the driver's errors into StoreError; with several units, a unit's own error passes as it is."""
    try:
        yield
    except DRIVER_ERRORS as error:
        if units > 1 and is_unit_error(error):
            raise
        kind = FullStoreError if isinstance(error, asyncpg.DiskFullError) else StoreError
        raise kind(f"{title}: {describe_error(error)}") from error


def was_rolled_back(error: Exception) -> bool:
    """Return whether the server reported a rollback; a lost connection reports nothing."""
    return isinstance(error, asyncpg.PostgresError) and error.severity_en == "ERROR"


def check_timezones(*rows: msgspec.Struct) -> None:
    """Raise ValueError if a row has a naive time."""
    for row in rows:
        for value in astuple(row):
            if isinstance(value, datetime):
                check_timezone(value)
