"""Handovers: definitions that move from one package to another in one change of a source.

The package that takes a name over is loaded first. It then takes over what runs under that name, so that a moved
reactor keeps its cache and a moved schedule its cursor. So a package waits in two cases: until it is known whether the
owner of a name gives it up, and, for a short time, before it gives up names that another package may take. Pure.
"""

from collections.abc import Iterable, Iterator

import msgspec

from tidemill.packages.deploy.change import NameClaim
from tidemill.packages.status import PackageKey

Names = frozenset[NameClaim]


class PackagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The names that a package has now, and those that it will have."""

    key: PackageKey
    loaded: Names
    arriving: Names | None
    """The names of its desired version; None while that is being prepared."""

    is_ready: bool = False
    """Whether the desired version is prepared and lacks nothing."""

    @property
    def leaving(self) -> Names:
        """The names that the package gives up, as far as that is known."""
        return frozenset() if self.arriving is None else self.loaded - self.arriving


def awaited_owners(own: PackagePlan, others: Iterable[PackagePlan]) -> Iterator[str]:
    """Yield the packages that have a name which `own` declares, and of which it is not known whether they keep it."""
    for other in others:
        if other.arriving is None and (taken := (own.arriving or frozenset()) & other.loaded):
            yield f"package '{other.key.name}', which has {min(taken)} and is being prepared"


def awaited_takers(own: PackagePlan, others: Iterable[PackagePlan]) -> Iterator[str]:
    """Yield the packages that take over a name which `own` gives up, or that may do so."""
    for other in others:
        if other.is_ready and (given := own.leaving & (other.arriving or frozenset())):
            yield f"package '{other.key.name}', which takes over {min(given)}"
        elif own.leaving and other.arriving is None:
            yield f"package '{other.key.name}', which is being prepared and may take over {min(own.leaving)}"
