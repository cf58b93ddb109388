"""The environment of a probe: what a package sees while it is probed, and advice on what it misses.

By default a package sees nothing of the node: code that was not probed gets no secrets. Only a developer's own code, as
in `tidemill dev`, sees what it will see when it is loaded: the environment variables, the working folder and the import
path. So code that works when it is run works in the probe too.
"""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from tidemill.kernel.author_errors import describe
from tidemill.packages.format.manifest import MANIFEST_FILE

_NAME_ERRORS = (NameError, AttributeError, ImportError, SyntaxError)
"""Errors whose messages name identifiers, which are not environment variables of the same name."""


class InheritedEnvironment(msgspec.Struct, frozen=True):
    """The part of the node's environment that a package sees in the probe."""

    variables: list[tuple[bytes, bytes]]
    path: list[str]
    """The import path."""


class ProbeEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of the node, and how much of it a package sees in the probe."""

    folder: str
    """The working folder of the node."""

    hidden_variables: list[str]
    """The names of the node's environment variables that the package does not see."""

    origin: str = ""
    """The author's folder or Python file, if it is on this machine."""

    inherited: InheritedEnvironment | None = None

    @classmethod
    def isolated(cls, origin: str = "") -> Self:
        """Return an environment that shows nothing of this process; the hidden names serve for advice."""
        return cls(
            folder=os.getcwd(), hidden_variables=[name for name in os.environ if name.isidentifier()], origin=origin
        )

    @classmethod
    def inherit_all(cls, origin: str = "") -> Self:
        """Return an environment that shows a developer's own code everything that this process has."""
        author_folder = os.path.realpath(_origin_folder(origin)) if origin else None
        path = [one for one in sys.path if os.path.realpath(one) != author_folder]  # only declared modules are found
        return cls(
            folder=os.getcwd(),
            hidden_variables=[],
            origin=origin,
            inherited=InheritedEnvironment(list(os.environb.items()), path),
        )

    def apply(self, preserved_variable: str) -> None:
        """Apply the inherited environment to this process, except for one variable."""
        if self.inherited is None:
            return
        own = os.environ.get(preserved_variable, "")
        os.environ.clear()
        for name, value in self.inherited.variables:
            os.environb[name] = value
        os.environ[preserved_variable] = own
        time.tzset()
        sys.path[:] = self.inherited.path
        with suppress(OSError):  # it is gone: the node has no working folder either
            os.chdir(self.folder)

    @property
    def single_file(self) -> str:
        """The name of the Python file that is the whole package; "" for any other package."""
        return os.path.basename(self.origin) if self.origin.endswith(".py") else ""

    def advice(self, error: BaseException) -> str:
        """Return what to do about an error that this environment has caused; "" if it has not."""
        return next(self._iter_advice(error), "")

    def _iter_advice(self, error: BaseException) -> Iterator[str]:
        if isinstance(error, ModuleNotFoundError) and self._is_neighbour_module(error.name):
            yield self._neighbour_advice(str(error.name).partition(".")[0])
        elif isinstance(error, ModuleNotFoundError):
            yield "install it where packages are loaded, or put it into the package"
        if (
            self.inherited is None
            and isinstance(error, FileNotFoundError)
            and self._exists_in_node_folder(error.filename)
        ):
            yield (
                f"it is in {self.folder}, but packages are probed in an empty folder: "
                "put it into the package and open it next to `__file__`, or open it in a task or a node"
            )
        if (
            self.inherited is None
            and not isinstance(error, _NAME_ERRORS)
            and (name := self._hidden_variable_in(describe(error)))
        ):
            yield (
                f"the environment has {name}, but packages are probed without it: "
                "read it in a task or a node, not at import"
            )

    def _is_neighbour_module(self, module: str | None) -> bool:
        """Return whether a module is next to the package, and not part of it."""
        if not self.origin or not module:
            return False
        found = Path(_origin_folder(self.origin), module.partition(".")[0])
        return found.with_suffix(".py").is_file() or found.is_dir()

    def _neighbour_advice(self, name: str) -> str:
        if self.single_file:
            return (
                f"a Python file that is a package by itself cannot import its neighbours: put them into a folder, "
                f'with modules = ["{self.single_file[:-3]}", "{name}"] in its {MANIFEST_FILE}'
            )
        return f'it is in the folder, but not in the package: add "{name}" to modules in {MANIFEST_FILE}'

    def _exists_in_node_folder(self, file: object) -> bool:
        return isinstance(file, str) and not os.path.isabs(file) and os.path.exists(os.path.join(self.folder, file))

    def _hidden_variable_in(self, text: str) -> str:
        """Return the first word of a text that is an environment variable of the node, but not of this process."""
        hidden = set(self.hidden_variables) - set(os.environ)
        return next((word for word in re.findall(r"\w+", text) if word in hidden), "")


def local_origin(title: str) -> str:
    """Return the folder or the Python file that contents were read from; "" for an archive or a remote source."""
    path = os.path.abspath(title)
    return path if os.path.isdir(path) or (path.endswith(".py") and os.path.exists(path)) else ""


def _origin_folder(origin: str) -> str:
    return os.path.dirname(origin) if origin.endswith(".py") else origin
