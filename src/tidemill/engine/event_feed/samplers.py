"""Samplers: publish what no one reports, by comparing it from time to time, while someone reads such events."""

from typing import Protocol


class Sampler(Protocol):
    """Compares something with how it was before."""

    title: str
    """What it samples, as part of the name of its task."""
    types: frozenset[str]
    """The types of events that it publishes."""

    async def start(self) -> None:
        """Note how it is now."""

    async def run(self) -> None:
        """Publish what changes, until cancelled."""
