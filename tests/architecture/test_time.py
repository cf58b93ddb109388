"""Time comes from the clock; a sleep in real time says why."""

import ast
from collections.abc import Iterator

from tests.architecture.sources import Module, listing, modules

SLEEPS = ("asyncio.sleep", "time.sleep")
REASON = "real time:"


def test_no_sleep_bypasses_the_clock_without_a_reason() -> None:
    """Q-2: a sleep in real time makes a test on virtual time slow or wrong; `sleep(0)` only yields to other tasks."""
    offenders = [
        f"{module.where(call.lineno)} {ast.unparse(call)}"
        for module in modules()
        for call in sleeps(module)
        if not is_explained(module, call)
    ]
    assert not offenders, listing(offenders)


def sleeps(module: Module) -> Iterator[ast.Call]:
    """Yield the calls that may sleep in real time."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS and ast.unparse(node.args[0]) != "0":
            yield node


def is_explained(module: Module, call: ast.Call) -> bool:
    """Return whether the line of a call, or a comment above it, says why it sleeps in real time."""
    line, above = module.lines[call.lineno - 1], module.lines[call.lineno - 2].strip()
    text = line if not above.startswith("#") else f"{above} {line}"
    return REASON in text.lower()
