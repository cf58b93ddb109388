"""Keeps the secrets of a server to its own process: code that it starts, as the same user, does not find them.

A secret that came in the environment or on the command line stays readable in `/proc` as long as the process lives, for
each process of the user, and for the command line for everybody. So it is removed where it can be, and the rest of the
process is closed to others: they can neither read its memory, its environment and its descriptors, nor trace it.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tidemill.kernel.settings import secret_variables
from tidemill.kernel.urls import MASKED_PASSWORD, mask_password

_PR_SET_DUMPABLE = 4
_FIRST_ADDRESS_FIELD = 45
"""The index of `arg_start` in /proc/self/stat, after the name of the process; `arg_end` and the environment follow."""


def keep_secrets_private() -> None:
    """Hide the secrets of this process from others. Call it after the settings have been read."""
    names = secret_variables(os.environ)
    for name in names:
        del os.environ[name]
    if sys.platform != "linux":
        return
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    arguments, arguments_end, variables, variables_end = map(int, fields[_FIRST_ADDRESS_FIELD:][:4])
    for address, text in _iter_texts(arguments, arguments_end):
        if (shown := mask_password(text)) != text:
            _wipe(address, text, shown.partition(MASKED_PASSWORD)[0], shown.rpartition(MASKED_PASSWORD)[2])
    for address, text in _iter_texts(variables, variables_end):
        if (name := text.partition("=")[0]) in names:
            _wipe(address, text, f"{name}=")
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _iter_texts(start: int, end: int) -> Iterator[tuple[int, str]]:
    """Yield each text of a part of this process's memory, with its address."""
    for data in ctypes.string_at(start, end - start).split(b"\0"):
        yield start, os.fsdecode(data)
        start += len(data) + 1


def _wipe(address: int, text: str, prefix: str, suffix: str = "") -> None:
    """Overwrite a text in memory, up to what may be shown at its start and at its end."""
    start, end = (len(os.fsencode(one)) for one in (prefix, text.removesuffix(suffix)))
    ctypes.memset(address + start, ord("*"), max(0, end - start))
