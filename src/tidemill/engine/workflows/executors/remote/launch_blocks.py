"""Pauses after failed launches: of one tenant if the cluster rejects its units, of all if the cluster does not answer.

One tenant whose quota is used up must not keep the others from launching.
"""

from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock

_BACKOFF = Backoff(1.0, 60.0)


class _Pause:
    """How long no unit is launched, and after how many failures in a row."""

    __slots__ = ("failures", "until")

    def __init__(self) -> None:
        self.failures = 0
        self.until = 0.0


class LaunchBlocks:
    """The tenants that launch no units for a while. None stands for all tenants."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._blocks: dict[str | None, _Pause] = {}

    @property
    def are_all_blocked(self) -> bool:
        """Whether no unit is launched at present, of any tenant."""
        return self._is_blocked(None)

    def tenants(self) -> set[str]:
        """Return the tenants that are blocked by themselves."""
        return {tenant for tenant in self._blocks if tenant is not None and self._is_blocked(tenant)}

    def record_failure(self, tenant: str | None) -> None:
        """Block a tenant, or all; launches that fail at the same time count once."""
        if not self._is_blocked(tenant):
            block = self._blocks.setdefault(tenant, _Pause())
            block.failures += 1
            block.until = self._clock.monotonic() + _BACKOFF.delay(block.failures)

    def record_success(self, tenant: str) -> None:
        """Begin with the shortest pause again; one that has started meanwhile stays."""
        for one in (None, tenant):
            if not self._is_blocked(one):
                self._blocks.pop(one, None)

    def _is_blocked(self, tenant: str | None) -> bool:
        block = self._blocks.get(tenant)
        return block is not None and self._clock.monotonic() < block.until
