"""Workflows: the domain, pure: no I/O, no asyncio, no clock."""
