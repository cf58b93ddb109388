"""Packages in one process: their modules are separate, and nothing stays after unloading (P-2, P-6)."""

import gc
import importlib
import importlib.util
import inspect
import linecache
import logging
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import msgspec
import pytest

from tests.unit.packages.package_samples import folder_of
from tidemill.annotations.codec import build_codec
from tidemill.annotations.variants import is_same_declaration, label
from tidemill.kernel.namespaces import Namespace, PackageTree, find_namespace, plain_name, plain_text

Open = Callable[..., Namespace]


@pytest.fixture
def open_namespace(tmp_path: Path) -> Iterator[Open]:
    """Write files and open namespaces over them; closing them must leave nothing behind."""
    opened: list[Namespace] = []
    before = traces()

    def open_one(files: dict[str, str], tops: tuple[str, ...] = ("market",), shown: str = "ada/market") -> Namespace:
        folder = folder_of(tmp_path / str(len(opened)), {name: text.encode() for name, text in files.items()})
        opened.append(Namespace(PackageTree(str(folder), shown, tops)))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
        one.close()
    assert traces() == before
    assert not list(tmp_path.rglob("*.pyc"))


def traces() -> list[object]:
    """Return everything that a namespace may leave behind."""
    finders = [type(one).__name__ for one in sys.meta_path if type(one).__module__ == Namespace.__module__]
    marked = [name for name in (*sys.modules, *logging.root.manager.loggerDict) if "@" in name]
    lines = [file for file in linecache.cache if "/market/" in file or file.endswith("market.py")]
    places = [place for place in sys.path_importer_cache if "open_namespace" in place or place.endswith("market")]
    seen = [name for name in inspect._filesbymodname if "@" in name]  # type: ignore[attr-defined]
    return [finders, marked, lines, places, seen]


def test_a_package_imports_its_own_modules(open_namespace: Open) -> None:
    """With every form of import; `import market.model` returns the package, and so on."""
    forms = {
        "import market.model": "market.model.VALUE",
        "import market.model as m": "m.VALUE",
        "from market import model": "model.VALUE",
        "from market import model as m": "m.VALUE",
        "from market.model import VALUE": "VALUE",
        "from market.model import *": "VALUE",
        "from . import model": "model.VALUE",
        "from .model import VALUE": "VALUE",
        "from ..model import VALUE": "VALUE",
        "from ..deep import one as first": "first.VALUE",
        "import importlib\nm = importlib.import_module('market.model')": "m.VALUE",
        "import importlib as i\nm = i.import_module('.model', 'market')": "m.VALUE",
        "from importlib import import_module\nm = import_module('..model', __package__)": "m.VALUE",
        "import importlib.util\nm = importlib.import_module('market.model')": "m.VALUE",
        "m = __import__('market.model').model": "m.VALUE",
        "exec('import market.model as m')": "m.VALUE",
        "import sys\nm = sys.modules[__name__.replace('deep.', '').rpartition('.')[0] + '.model']": "m.VALUE",
    }
    files = {
        "market/__init__.py": "from . import model\n",
        "market/model.py": "VALUE = 7\n",
        "market/deep/__init__.py": "",
    }
    files["market/deep/one.py"] = "VALUE = 7\n"
    for number, (form, value) in enumerate(forms.items()):
        place = "market/deep" if ".." in form or "deep" in form else "market"
        files[f"{place}/form{number}.py"] = f"{form}\nFOUND = {value}\n"
    namespace = open_namespace(files)
    for number, form in enumerate(forms):
        place = "market.deep" if ".." in form or "deep" in form else "market"
        assert namespace.import_module(f"{place}.form{number}").FOUND == 7, form
    assert "market" not in sys.modules
    assert "market.model" not in sys.modules


def test_names_are_marked_and_plain_names_are_available(open_namespace: Open) -> None:
    namespace = open_namespace({"market/__init__.py": "", "market/model.py": "class Book: pass\n"})
    model = namespace.import_module("market.model")
    number = model.__name__.partition("@")[2].partition(".")[0]
    assert (model.__name__, model.__package__) == (f"market@{number}.model", f"market@{number}")
    assert (plain_name(model.__name__), plain_name("market"), plain_name("a.b")) == ("market.model", "market", "a.b")
    assert label(list[model.Book]) == "list[market.model.Book]"  # type: ignore[name-defined]
    assert plain_text(f"{model.Book} ada@{number} market@{number}7") == (
        f"<class 'market.model.Book'> ada@{number} market@{number}7"
    )
    assert find_namespace(model.__name__) is namespace
    assert find_namespace("json") is None
    assert list(namespace.modules()) == ["market", "market.model"]
    namespace.close()
    assert find_namespace(model.__name__) is None
    assert not namespace.modules()


def test_two_namespaces_of_one_tree_share_nothing(open_namespace: Open) -> None:
    """P-11: and two loaded copies of a class count as the same declaration."""
    first = open_namespace(
        {"market.py": "import tidemill as tm\nclass Book(tm.Boundary):\n    bid: float\nseen = []\n"}
    )
    second = Namespace(first.tree)
    try:
        one, other = (each.import_module("market") for each in (first, second))
        assert one is not other
        assert one.seen is not other.seen
        assert first.import_module("market") is one
        assert one.Book is not other.Book
        assert is_same_declaration(one.Book, other.Book)
        first.close()
        assert sys.modules[other.__name__] is other
        assert linecache.getline(second.tree.shown + "/market.py", 2) == "class Book(tm.Boundary):\n"
    finally:
        second.close()


def test_stored_values_keep_their_schema_after_a_reload(open_namespace: Open) -> None:
    """P-6: a schema does not depend on the load, even if two classes have one name."""
    files = {
        "market/__init__.py": (
            "import msgspec\nfrom market import a, b\nclass Pair(msgspec.Struct):\n    x: a.Order\n    y: b.Order\n"
        ),
        "market/a.py": "import msgspec\nclass Order(msgspec.Struct):\n    pence: int\n",
        "market/b.py": "import msgspec\nclass Order(msgspec.Struct):\n    pence: str\n",
    }
    schemas = [build_codec(open_namespace(files).import_module("market").Pair).schema for _ in range(2)]
    assert schemas[0] == schemas[1]
    properties = [one["properties"]["pence"]["type"] for name, one in schemas[0]["$defs"].items() if name != "Pair"]
    assert sorted(properties) == ["integer", "string"]
    files["market/b.py"] = files["market/b.py"].replace("str", "bool")
    assert build_codec(open_namespace(files).import_module("market").Pair).schema != schemas[0]


def test_imports_inside_functions_find_the_package(open_namespace: Open) -> None:
    """On any thread, at any later time; after unloading they raise."""
    files = {
        "market/__init__.py": (
            "def ask():\n    from market.late import VALUE\n    return VALUE\ndef never():\n    import market.more\n"
        ),
        "market/late.py": "VALUE = 3\n",
        "market/more.py": "",
    }
    namespace = open_namespace(files)
    market = namespace.import_module("market")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(market.ask).result() == 3
    namespace.close()
    with pytest.raises(ImportError, match="ada/market: the package was unloaded"):
        market.never()


def test_modules_that_import_one_another_in_a_circle(open_namespace: Open) -> None:
    files = {
        "market/__init__.py": "from market import a\n",
        "market/a.py": "import market.b as b\nfrom . import b as again\nVALUE = 1\ndef total(): return b.VALUE + 1\n",
        "market/b.py": "import market.a as a\nfrom market import a as it\nVALUE = 2\ndef total(): return a.total()\n",
    }
    assert open_namespace(files).import_module("market.b").total() == 3


def test_text_annotations_are_resolved(open_namespace: Open) -> None:
    """Dataclasses and structs resolve names through sys.modules."""
    code = """\
from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING
import msgspec
if TYPE_CHECKING:
    from market.nowhere import Nothing
class Leg(msgspec.Struct):
    price: float
class Order(msgspec.Struct):
    legs: list[Leg]
@dataclass
class Note:
    order: Order
    def reply(self) -> Nothing: ...
"""
    market = open_namespace({"market.py": code}).import_module("market")
    assert msgspec.json.decode(b'{"legs":[{"price":1.5}]}', type=market.Order).legs == [market.Leg(1.5)]
    assert get_type_hints(market.Note) == {"order": market.Order}
    assert msgspec.json.decode(b'{"order":{"legs":[]}}', type=market.Note) == market.Note(market.Order([]))


def test_values_can_be_pickled_while_the_namespace_is_open(open_namespace: Open) -> None:
    code = "import pickle\nclass Order:\n    pass\ndef again(one): return pickle.loads(pickle.dumps(one))\n"
    namespace = open_namespace({"market.py": code})
    order = namespace.import_module("market").Order()
    data = pickle.dumps(order)
    assert type(pickle.loads(data)) is type(order)
    assert type(namespace.import_module("market").again(order)) is type(order)
    namespace.close()
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(data)


def test_the_author_sees_their_own_file(open_namespace: Open, tmp_path: Path) -> None:
    """P-10: tracebacks and `inspect` show the author's path with the lines that run, even if the file has changed."""
    shown = folder_of(tmp_path / "author", {"market.py": b"# something else\n" * 9})
    code = 'import logging\ndef fail():\n    raise ValueError("no")\n\nclass Book:\n    bid = 1\n'
    namespace = open_namespace({"market.py": code}, shown=str(shown))
    market = namespace.import_module("market")
    assert market.fail.__code__.co_filename == str(shown / "market.py")
    assert inspect.getsource(market.fail) == 'def fail():\n    raise ValueError("no")\n'
    assert inspect.getsource(market.Book) == "class Book:\n    bid = 1\n"
    with pytest.raises(ValueError, match="no") as raised:
        market.fail()
    told = "".join(traceback.format_exception(raised.value))
    assert f'File "{shown / "market.py"}", line 3, in fail\n    raise ValueError("no")' in told


def test_data_lies_next_to_the_copy(open_namespace: Open) -> None:
    code = """\
from importlib.resources import files
from pathlib import Path
import pkgutil
NEAR = (Path(__file__).parent / "data" / "prices.csv").read_text()
FOUND = files(__package__).joinpath("data", "prices.csv").read_text()
NAMES = sorted(one.name for one in pkgutil.iter_modules(__path__))
"""
    files = {"market/__init__.py": code, "market/data/prices.csv": "1,2\n", "market/model.py": ""}
    files["market/extra/deep.py"] = "VALUE = 1\n"
    namespace = open_namespace(files)
    market = namespace.import_module("market")
    assert (market.NEAR, market.FOUND, market.NAMES) == ("1,2\n", "1,2\n", ["model"])
    assert namespace.import_module("market.extra.deep").VALUE == 1  # a folder needs no __init__.py


def test_an_installed_module_of_that_name_is_hidden_inside_only(open_namespace: Open) -> None:
    namespace = open_namespace(
        {"msgspec.py": "MINE = True\n", "market.py": "import msgspec, json\n"}, ("msgspec", "market")
    )
    market = namespace.import_module("market")
    assert market.msgspec.MINE
    assert market.json is sys.modules["json"]
    assert importlib.import_module("msgspec") is msgspec


def test_a_failed_import_leaves_nothing(open_namespace: Open) -> None:
    """P-2: not the module, and after `close` not those that were imported before it."""
    files = {
        "market/__init__.py": "",
        "market/good.py": "import logging\nlogging.getLogger(__name__ + '.deep.down')\n",
        "market/bad.py": "from market import good\n1 / 0\n",
    }
    namespace = open_namespace(files)
    with pytest.raises(ZeroDivisionError) as raised:
        namespace.import_module("market.bad")
    assert traceback.extract_tb(raised.value.__traceback__)[-1].filename == "ada/market/market/bad.py"
    left = [plain_name(name) for name in sys.modules if "@" in name]
    assert left == ["market", "market.good"]
    assert namespace.import_module("market.good")
    with pytest.raises(ZeroDivisionError):  # it is tried again
        namespace.import_module("market.bad")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import market.nope", "No module named 'market.nope'"),
        ("from .nope import x", "No module named 'market.nope'"),
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("from market import nope", "cannot import name 'nope' from 'market' (ada/market/market/__init__.py)"),
        ("import importlib\nimportlib.import_module('market.nope')", "No module named 'market.nope'"),
    ],
)
def test_errors_use_plain_names(open_namespace: Open, code: str, said: str) -> None:
    """P-10: no marks, and no copies of files."""
    namespace = open_namespace({"market/__init__.py": "", "market/bad.py": code})
    with pytest.raises(ImportError) as raised:
        namespace.import_module("market.bad")
    assert (str(raised.value), raised.value.args) == (said, (said,))
    assert raised.value.name in said  # type: ignore[operator]
    assert "@" not in str(raised.value.name)


def test_syntax_errors_are_in_the_authors_file(open_namespace: Open) -> None:
    with pytest.raises(SyntaxError) as raised:
        open_namespace({"market.py": "x = (\n"}).import_module("market")
    assert (raised.value.filename, raised.value.lineno) == ("ada/market/market.py", 1)


def test_sources_may_have_any_encoding(open_namespace: Open, tmp_path: Path) -> None:
    namespace = open_namespace({})
    Path(namespace.tree.folder).mkdir()
    Path(namespace.tree.folder, "market.py").write_bytes("# coding: latin-1\r\nNAME = 'Zoë'\r\n".encode("latin-1"))
    assert namespace.import_module("market").NAME == "Zoë"
    assert linecache.getline("ada/market/market.py", 2) == "NAME = 'Zoë'\n"


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"A = 1\n# caf\xe9\n", 2, "byte 0xe9 is not UTF-8: save the file as UTF-8, or name its encoding in line 1"),
        (b"A = 1\n\nB = '\0'\n", 3, "there is a NUL character, which is in no text: save the file as text in UTF-8"),
        (
            "A = 1\n".encode("utf-16"),
            1,
            "there is a NUL character, which is in no text: save the file as text in UTF-8",
        ),
        (b"# coding: nonsense\nA = 1\n", 1, "it cannot be read as text: unknown encoding: nonsense"),
    ],
)
def test_a_source_that_is_not_text_is_reported_with_its_line(
    open_namespace: Open, content: bytes, line: int, said: str
) -> None:
    """P-10: that of the file itself, not of the line that imports it."""
    namespace = open_namespace({"market/__init__.py": "\n\n\nimport market.enc\n"})
    Path(namespace.tree.folder, "market", "enc.py").write_bytes(content)
    with pytest.raises(SyntaxError) as raised:
        namespace.import_module("market")
    assert (raised.value.filename, raised.value.lineno) == ("ada/market/market/enc.py", line)
    assert raised.value.msg == said


def test_many_threads_import_a_module_once(open_namespace: Open) -> None:
    files = {"market/__init__.py": "runs = []\n", "market/slow.py": "import market\nmarket.runs.append(1)\n"}
    namespace = open_namespace(files)
    gate = threading.Barrier(8)

    def ask(_: int) -> ModuleType:
        gate.wait()
        return namespace.import_module("market.slow")

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(ask, range(8)))
    assert len(found) == 1
    assert namespace.import_module("market").runs == [1]


def test_an_import_during_close_leaves_nothing(open_namespace: Open) -> None:
    """At any point of the module's code."""
    files = {"market/__init__.py": "", "market/a.py": "close()\nimport market.b\n", "market/b.py": ""}
    namespace = open_namespace(files)
    namespace.builtins["close"] = namespace.close
    with pytest.raises(ImportError):
        namespace.import_module("market.a")
    with pytest.raises(ImportError):
        namespace.import_module("market")
    assert not [name for name in sys.modules if "@" in name]


def test_specs_and_reloads_work_as_usual(open_namespace: Open) -> None:
    namespace = open_namespace({"market/__init__.py": "count = globals().get('count', 0) + 1\n"})
    market = namespace.import_module("market")
    assert importlib.util.find_spec(market.__name__) is market.__spec__
    assert importlib.util.find_spec(f"{market.__name__}.nope") is None
    assert importlib.reload(market) is market
    assert market.count == 2


CODE = """\
import logging
from typing import Optional
import tidemill as tm
from market.model import Book
logger = logging.getLogger(__name__)
def best(books: Optional[list[Book]]) -> Optional[Book]: return None
"""
MODEL = "import tidemill as tm\nclass Book(tm.Boundary):\n    bid: float\n    ask: 'float | None' = None\n"


def load_and_unload(tree: PackageTree, times: int) -> None:
    """Load a package, use it and unload it, several times."""
    for _ in range(times):
        namespace = Namespace(tree)
        market: Any = namespace.import_module("market")
        get_type_hints(market.best)
        namespace.close()
    gc.collect()


def test_thousands_of_loads_leave_the_process_as_it_was(tmp_path: Path) -> None:
    """P-6: no module, logger, class or line stays."""
    folder = folder_of(tmp_path, {"market/__init__.py": CODE.encode(), "market/model.py": MODEL.encode()})
    tree = PackageTree(str(folder), "ada/market", ("market",))
    load_and_unload(tree, 50)  # whatever is kept once is kept by now
    before = traces(), len(sys.modules), len(gc.get_objects()), len(linecache.cache), sys.getallocatedblocks()
    load_and_unload(tree, 2_000)
    after = traces(), len(sys.modules), len(gc.get_objects()), len(linecache.cache), sys.getallocatedblocks()
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 100
    assert after[3] == before[3]
    assert after[4] - before[4] < 2_000  # fewer are fine: what other tests have left may be released meanwhile
