"""The public surface changes only on purpose."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill
from tests.architecture.sources import modules

NAMES = Path(__file__).with_name("public_names.txt")
LIMIT = 65
UPDATE = r"""
The public names changed. If that is intended, say so in CHANGELOG.md and write the list again:
.venv/bin/python -c "import tidemill; print(*tidemill.__all__, sep='\n')" \
  > tests/architecture/public_names.txt
"""


def test_the_public_names_are_those_on_the_committed_list() -> None:
    """Adding or removing a name shows up in the diff of `public_names.txt`."""
    assert list(tidemill.__all__) == NAMES.read_text(encoding="utf-8").split(), UPDATE


def test_the_public_names_are_few_and_in_order() -> None:
    """At most 65 names, sorted."""
    assert list(tidemill.__all__) == sorted(set(tidemill.__all__))
    assert len(tidemill.__all__) <= LIMIT


def test_every_public_name_is_there_and_documented() -> None:
    """`help(tidemill.X)` shows a docstring for each name in `__all__`."""
    silent = [name for name in tidemill.__all__ if not getattr(tidemill, name).__doc__]
    assert not silent


def test_type_checkers_and_programs_find_a_name_in_the_same_place() -> None:
    """The imports for type checkers and the lazy imports at run time name the same modules."""
    (module,) = (one for one in modules() if one.name == "tidemill")
    block = next(node for node in module.tree.body if isinstance(node, ast.If))
    seen = {one.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for one in node.names}
    assert {name for name in tidemill._SUBMODULES if seen.pop(name) == "tidemill"} == set(tidemill._SUBMODULES)
    assert seen == tidemill._MODULE_OF_NAME
    assert sorted(seen) == list(tidemill.__all__)


def test_the_sources_are_found_by_type_checkers_and_programs_alike() -> None:
    """`tm.sources` imports a source, and its client, only when a program names it."""
    (module,) = (one for one in modules() if one.name == "tidemill.sources")
    block = next(node for node in module.tree.body if isinstance(node, ast.If))
    seen = {one.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for one in node.names}
    assert seen == tidemill.sources._MODULE_OF_NAME
    assert sorted(seen) == list(tidemill.sources.__all__)
    assert not [name for name in seen if not getattr(tidemill.sources, name).__doc__]
    with pytest.raises(AttributeError, match=r"module 'tidemill.sources' has no attribute 'WebSockt'"):
        getattr(tidemill.sources, "WebSockt")  # noqa: B009


def test_names_are_available_before_their_first_use() -> None:
    """In `dir`, for `pickle`, and with a clear error for a misspelled name."""
    assert {"sources", "testing", *tidemill.__all__} <= set(dir(tidemill))
    assert pickle.loads(pickle.dumps(tidemill.RunState)) is tidemill.RunState
    with pytest.raises(AttributeError, match="module 'tidemill' has no attribute 'Wrkflow'"):
        getattr(tidemill, "Wrkflow")  # noqa: B009
    with pytest.raises(ImportError, match="cannot import name 'Wrkflow'"):
        exec("from tidemill import Wrkflow")


LEAN = """
import sys
import tidemill as tm
early = {"asyncio", "logging", "threading"} & set(sys.modules)
tm.Workflow, tm.Graph, tm.Context, tm.Retry, tm.Cron
late = {"tidemill.node", "tidemill.storage", "tidemill.packages", "sqlite3"} & set(sys.modules)
from tidemill import *
assert Node is tm.Node
print(early, late)
"""


def test_declarations_do_not_bring_a_node() -> None:
    """docs/design, 0018: a module that the fork server does not import costs its children nothing."""
    done = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("set() set()\n", "")


SERVED = """
import sys
import tidemill.node
node = {"cryptography", "importlib.metadata", "sqlite3"} & set(sys.modules)
import tidemill.server.serving, tidemill.server.app
server = {"cryptography", "httpx", "prometheus_client"} & set(sys.modules)
print(node, server)
"""


def test_a_start_imports_only_what_every_node_uses() -> None:
    """Secrets, signatures, OIDC and metrics import their libraries on first use: all would be a fifth of the start."""
    done = subprocess.run([sys.executable, "-c", SERVED], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("set() set()\n", "")
