"""Capabilities: what the tasks of a package may ask of their node, as its manifest says."""

from fnmatch import fnmatchcase
from typing import Final

import msgspec

from tidemill.kernel.errors import RequestError
from tidemill.workflows.node_calls import NodeCall, OwnCall, PushCall, SecretCall, StartCall, VariableCall

ENFORCED_KINDS: Final = {
    "push": "push to accumulator",
    "secret": "read secret",
    "start": "start workflow",
    "variable": "read variable",
}
"""The kinds that a node checks, and what they allow."""
DECLARED_KINDS: Final = ("executor", "network")
"""The kinds that only tell a reader what a package needs."""


class Grants(msgspec.Struct, frozen=True):
    """The capabilities of a package, for the tasks of its workflows."""

    package: str
    capabilities: tuple[str, ...]
    """Each a kind and a name, such as "secret:bank_token"; `*` in the name stands for any characters."""

    def check(self, call: NodeCall) -> None:
        """Raise a RequestError that names the line to add, unless a call is allowed."""
        if isinstance(call, OwnCall):
            return
        needed = _needed_for(call)
        if any(fnmatchcase(needed, one) for one in self.capabilities):
            return
        kind, _, name = needed.partition(":")
        line = ", ".join(f'"{one}"' for one in (*self.capabilities, needed))
        raise RequestError(
            f"package '{self.package}' may not {ENFORCED_KINDS[kind]} '{name}': "
            f"write capabilities = [{line}] in [package] of its package.toml",
            code="capability_missing",
            status=403,
        )


def _needed_for(call: PushCall | StartCall | SecretCall | VariableCall) -> str:
    match call:
        case PushCall():
            return f"push:{call.accumulator}"
        case StartCall():
            return f"start:{call.workflow}"
        case SecretCall():
            return f"secret:{call.name}"
    return f"variable:{call.name}"
