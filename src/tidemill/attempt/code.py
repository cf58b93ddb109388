"""The code of an attempt: downloaded as a bundle, or already installed where the attempt runs."""

import importlib.util
import sys
from pathlib import Path

from tidemill.attempt.connection import ServerConnection
from tidemill.engine.workflows.executors.code import CodeLocation
from tidemill.engine.workflows.executors.remote.bundles import unpack_bundle
from tidemill.engine.workflows.executors.remote.orders import BundledCode, InstalledCode, OrderedCode
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import OperationError
from tidemill.kernel.namespaces import PackageTree


async def prepare_code(code: OrderedCode, connection: ServerConnection, folder: Path) -> CodeLocation:
    """Return where the code is; a bundle is downloaded into a folder, and checked."""
    if isinstance(code, InstalledCode):
        return _locate_installed(code)
    archive = await connection.get("/code")
    await call_in_thread(unpack_bundle, archive, code.digest, folder)
    return _locate_bundle(code, folder)


def _locate_bundle(code: BundledCode, folder: Path) -> CodeLocation:
    tree = PackageTree(str(folder), code.shown, code.tops)
    return CodeLocation(code.modules[0], str(folder), tuple(sys.path), tree, code.modules, code.settings)


def _locate_installed(code: InstalledCode) -> CodeLocation:
    """Return where a module is installed: in the same file as on the node, or wherever Python finds it."""
    path = (*sys.path, *(one for one in code.path if one not in sys.path and Path(one).exists()))
    if Path(code.file).is_file():
        return CodeLocation(code.module, code.file, path)
    try:
        spec = importlib.util.find_spec(code.module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise OperationError(
            f"module '{code.module}' is not installed where the attempt runs, and there is no {code.file}: publish the "
            "code as a package, which is downloaded, or install it in the image"
        )
    return CodeLocation(code.module, spec.origin, path)
