"""The states of packages and the steps of their loads, as every surface shows them. It imports no other module."""

from datetime import datetime
from typing import Literal

import msgspec

State = Literal["preparing", "waiting", "loaded", "failed", "unloading", "unloaded"]


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """One deploy step of a package's last load."""

    step: str
    started_at: datetime | None = None
    """None if the load did not come that far."""
    duration: float | None = None
    """Seconds; None while the step runs."""
    failed: bool = False
