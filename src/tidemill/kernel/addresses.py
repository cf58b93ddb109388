"""Addresses of servers and databases, and how to speak of them without telling a password."""

import re

_USER_INFO = re.compile(r"^(?P<scheme>[\w+.-]+:/+)?(?P<user>[^:/@]*)(?P<rest>.*)@", re.DOTALL)
_OPTION = re.compile(r"(?i)(?<=password=)[^&\s]*")


def without_password(address: str) -> str:
    """Return an address as it may be shown, also one that is misspelt: whatever may be a password is left out."""
    return _OPTION.sub("…", _USER_INFO.sub(_masked, address))


def _masked(found: re.Match[str]) -> str:
    return f"{found['scheme'] or ''}{found['user']}{':…' if found['rest'] else ''}@"
