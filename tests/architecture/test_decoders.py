"""No decoder that runs code can be reached from outside: Tidemill reads JSON, msgpack and TOML."""

import ast

from tests.architecture.sources import listing, modules

FORBIDDEN = {"dill", "cloudpickle", "marshal", "pickle", "shelve", "yaml"}


def test_no_module_imports_a_decoder_that_runs_code() -> None:
    """F86: what a request, a package or a store holds is data."""
    offenders = [
        f"{module.where(node.lineno)} {name}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.stmt)
        for name in imported_names(node)
        if name.partition(".")[0] in FORBIDDEN
    ]
    assert not offenders, listing(offenders)


def imported_names(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
