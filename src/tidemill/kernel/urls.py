"""Addresses of servers and databases, without their passwords."""

import re

MASKED_PASSWORD = "…"
_USER_INFO = re.compile(r"^(?P<scheme>[\w+.-]+:/+)?(?P<user>[^:/@]*)(?P<rest>.*)@", re.DOTALL)
_CREDENTIALS = re.compile(r"^(?P<scheme>\s*[\w+.-]+:/+)?.*@", re.DOTALL)
_NEXT_ADDRESS = re.compile(r",(?=\s*[\w+.-]+:/)")
_PASSWORD_OPTION = re.compile(r"(?i)(?<=password=)[^&\s]*")


def mask_password(url: str) -> str:
    """Return an address with everything that may be a password masked, even if the address is misspelt."""
    return _PASSWORD_OPTION.sub(MASKED_PASSWORD, _USER_INFO.sub(_mask_user_info, url))


def mask_credentials(urls: str) -> str:
    """Return addresses, separated by commas, with everything before each host masked: a user may be a token."""
    return ",".join(_CREDENTIALS.sub(rf"\g<scheme>{MASKED_PASSWORD}@", url) for url in _NEXT_ADDRESS.split(urls))


def _mask_user_info(match: re.Match[str]) -> str:
    return f"{match['scheme'] or ''}{match['user']}{f':{MASKED_PASSWORD}' if match['rest'] else ''}@"
