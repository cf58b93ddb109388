"""Entries of `by`: the roles and actors that may answer a wait, and those that may not."""

from collections.abc import Sequence

_ROLES = {"role:read": ("read", "write", "admin"), "role:write": ("write", "admin"), "role:admin": ("admin",)}
"""The roles that each entry admits."""
DEFAULT_ROLE = "role:write"
"""Who may answer if nothing says who."""


def parse_answerers(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the entries of `by`; ValueError if one is malformed."""
    entries = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    for one in entries:
        if not isinstance(one, str) or not _is_well_formed(one):
            raise ValueError(
                f"by= takes role:read, role:write or role:admin, an actor such as account:ada or key:4f2a91c0, "
                f"not:starter and not:ACTOR; not {one!r}"
            )
    return entries


def _is_well_formed(entry: str) -> bool:
    if entry in _ROLES or entry == "not:starter":
        return True
    kind, _, name = entry.removeprefix("not:").partition(":")
    return kind in ("account", "key") and bool(name) and name == name.strip()


def may_answer(by: Sequence[str], actor: str, role: str, starter: str | None) -> bool:
    """Return whether an actor may answer: an exclusion binds everybody, and an admin needs no entry."""
    if f"not:{actor}" in by or ("not:starter" in by and actor == starter):
        return False
    if role == "admin":
        return True
    positive = [one for one in by if not one.startswith("not:")] or [DEFAULT_ROLE]
    return actor in positive or any(role in _ROLES[one] for one in positive if one in _ROLES)
