"""A step of loading a package: three verbs, each of which may be called again if it failed half way."""

from typing import Protocol

from tidemill.packages.exchange import Exchange


class Step(Protocol):
    """One kind of side effect of a package."""

    title: str
    """What it is about, for messages."""
    takes_time: bool
    """Whether it may wait for what authors' code does, and not for the store alone."""

    async def put(self, exchange: Exchange) -> None:
        """Put in place what the package is to have of this kind."""

    async def take_back(self, exchange: Exchange) -> None:
        """Make everything as it was before `put`, however far that came."""

    async def retire(self, exchange: Exchange) -> None:
        """Take away what the package had and is no longer to have: all of it when it is unloaded."""
