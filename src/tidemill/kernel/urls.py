"""Addresses of servers and databases, without their passwords."""

import re

_USER_INFO = re.compile(r"^(?P<scheme>[\w+.-]+:/+)?(?P<user>[^:/@]*)(?P<rest>.*)@", re.DOTALL)
_PASSWORD_OPTION = re.compile(r"(?i)(?<=password=)[^&\s]*")


def mask_password(url: str) -> str:
    """Return an address with everything that may be a password masked, even if the address is misspelt."""
    return _PASSWORD_OPTION.sub("…", _USER_INFO.sub(_mask_user_info, url))


def _mask_user_info(match: re.Match[str]) -> str:
    return f"{match['scheme'] or ''}{match['user']}{':…' if match['rest'] else ''}@"
