"""Structs with abstract methods: a subclass that leaves one out cannot be created."""

from abc import ABCMeta

import msgspec


class AbstractStructMeta(msgspec.StructMeta, ABCMeta):
    """The class of structs whose methods may be abstract."""
