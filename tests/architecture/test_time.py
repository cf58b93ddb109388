"""Time belongs to the clock: whatever sleeps beside it says why."""

import ast
from collections.abc import Iterator

from tests.architecture.sources import Module, listing, modules

SLEEPS = ("asyncio.sleep", "time.sleep")
REASON = "real time:"


def test_nothing_sleeps_beside_the_clock_without_a_reason() -> None:
    """Q-2: a sleep in real time makes a test of virtual time wait, or lie; giving others their turn is no sleep."""
    offenders = [
        f"{module.where(call.lineno)} {ast.unparse(call)}"
        for module in modules()
        for call in sleeps(module)
        if not is_explained(module, call)
    ]
    assert not offenders, listing(offenders)


def sleeps(module: Module) -> Iterator[ast.Call]:
    """Yield the calls that may let real time pass."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS and ast.unparse(node.args[0]) != "0":
            yield node


def is_explained(module: Module, call: ast.Call) -> bool:
    """Tell whether the line of a call, or a comment above it, says why it is real time that passes."""
    line, above = module.lines[call.lineno - 1], module.lines[call.lineno - 2].strip()
    said = line if not above.startswith("#") else f"{above} {line}"
    return REASON in said.lower()
