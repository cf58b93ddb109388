"""The files of a package with something in each of the six deploy steps."""

from pathlib import Path

from tests.unit.packages.package_samples import folder_of
from tidemill.kernel.clock import SystemClock
from tidemill.packages.format.archive import parse_archive
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.format.zip_format import build_zip
from tidemill.packages.publishing import Publisher
from tidemill.storage.store import Store

MANIFEST = '[package]\nname = "shop"\nversion = "{version}"\nmodules = ["shop", "shop.flows"]\n'
SHOP = """\
import tidemill as tm

SEEN = []

@tm.passthrough
def orders(event: int) -> int:
    return event

till = tm.Reactor("till", [orders])
totals = tm.Graph("totals", reactor=till)
scoring = tm.Graph("scoring")

@totals.node
def total(orders: int) -> None:
    SEEN.append(orders)

@scoring.node
def score(count: int) -> int:
    return count * 10

@tm.trigger(every="20m")
async def new_files() -> tm.Fire | None:
    return None
"""
FLOWS = """\
import tidemill as tm

daily = tm.Workflow("daily", schedule=tm.Every("1h", key="hourly"), triggers=["new_files"])

@daily.task
def count() -> int:
    from shop import number
    return number.NUMBER

daily.call("scoring", name="scored")
"""
BROKEN = "import tidemill as tm\n\nthis_name_is_not_defined\n"


def shop(version: str = "1.0.0", number: int = 1, **changed: str) -> dict[str, bytes]:
    """Return the files of a version of the package; its workflow tells its number."""
    files = {
        "package.toml": MANIFEST.format(version=version),
        "shop/__init__.py": SHOP,
        "shop/flows.py": FLOWS,
        "shop/number.py": f"NUMBER = {number}\n",
    }
    files |= {f"shop/{name}.py": text for name, text in changed.items()}
    return {name: text.encode() for name, text in files.items()}


def shop_in(folder: Path, version: str = "1.0.0", number: int = 1, **changed: str) -> Path:
    """Write a version of the package as a folder; what was there of another one is replaced."""
    return folder_of(folder, shop(version, number, **changed))


async def publish(store: Store, version: str = "1.0.0", number: int = 1, **changed: str) -> None:
    """Want a version of the package on every node."""
    contents = parse_archive(build_zip(shop(version, number, **changed)), "shop.tidemill")
    await Publisher(store.packages, TrustPolicy(), SystemClock()).publish(contents, "public")
