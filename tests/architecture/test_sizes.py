"""Files and functions stay small."""

from scripts.measure import function_length
from tests.architecture.sources import FunctionNode, Module, listing, modules

FILE_LIMIT = 500
FUNCTION_LIMIT = 40
REASON = "# long: "


def test_no_file_is_too_long() -> None:
    """Q-1: a file has at most 500 lines."""
    offenders = [
        f"{module.where(1)} has {len(module.lines)} lines" for module in modules() if len(module.lines) > FILE_LIMIT
    ]
    assert not offenders, listing(offenders)


def test_no_function_is_too_long_without_a_reason() -> None:
    """Q-1: a function has at most 40 lines, or `# long: reason` in the line above it."""
    offenders = [
        f"{module.where(function.lineno)} {function.name} has {function_length(function)} lines"
        for module in modules()
        for function in module.functions
        if function_length(function) > FUNCTION_LIMIT and not has_reason(module, function)
    ]
    assert not offenders, listing(offenders)


def has_reason(module: Module, function: FunctionNode) -> bool:
    """Return whether the line above the function, or above its first decorator, says why it is long."""
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    above = module.lines[first - 2].strip() if first > 1 else ""
    return above.startswith(REASON) and above != REASON.strip()
