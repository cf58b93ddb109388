"""What a package finds around it while it is tried, and what it misses there although the node has it.

As a rule that is as good as nothing: no secret of a node is shown to code that nobody has tried. Only where the code is
the developer's own, as in `tidemill dev`, it finds what it will find when it is loaded: the environment, the working
folder, and what can be imported. So what works when it is run works there too.
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
"""Errors in which a word that is also the name of a variable of the environment means something else."""


class InheritedEnvironment(msgspec.Struct, frozen=True):
    """What of the node's own a package finds while it is tried."""

    variables: list[tuple[bytes, bytes]]
    path: list[str]
    """Where modules are looked for."""


class ProbeEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """Where the node is that tries a package, and how much of that the package finds."""

    folder: str
    """In which the node works."""

    hidden_variables: list[str]
    """What is set in the node's environment; only the names."""

    origin: str = ""
    """The folder or the Python file that the author has, if it is on this machine."""

    inherited: InheritedEnvironment | None = None

    @classmethod
    def isolated(cls, origin: str = "") -> Self:
        """Return what is around code of others: nothing of this process, but what is missed can be named."""
        return cls(
            folder=os.getcwd(), hidden_variables=[name for name in os.environ if name.isidentifier()], origin=origin
        )

    @classmethod
    def inherit_all(cls, origin: str = "") -> Self:
        """Return what is around the developer's own code: everything that is here."""
        authors = (
            os.path.realpath(_origin_folder(origin)) if origin else None
        )  # of which only what is declared is found
        path = [one for one in sys.path if os.path.realpath(one) != authors]
        return cls(
            folder=os.getcwd(),
            hidden_variables=[],
            origin=origin,
            inherited=InheritedEnvironment(list(os.environb.items()), path),
        )

    def apply(self, preserved_variable: str) -> None:
        """Let this process find what is given; the variable that is `kept` stays as it is."""
        if self.inherited is None:
            return
        own = os.environ.get(preserved_variable, "")
        os.environ.clear()
        for name, value in self.inherited.variables:
            os.environb[name] = value
        os.environ[preserved_variable] = own
        time.tzset()
        sys.path[:] = self.inherited.path
        with suppress(OSError):  # it is gone: then the node works nowhere, either
            os.chdir(self.folder)

    @property
    def single_file(self) -> str:
        """The name of the Python file that is a package by itself; "" of any other package."""
        return os.path.basename(self.origin) if self.origin.endswith(".py") else ""

    def advice(self, error: BaseException) -> str:
        """Return what to do about an error that only these surroundings have caused; "" if they have not."""
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
                f"it is in {self.folder}, but packages are tried in an empty folder: "
                "put it into the package and open it next to `__file__`, or open it in a task or a node"
            )
        if (
            self.inherited is None
            and not isinstance(error, _NAME_ERRORS)
            and (name := self._hidden_variable_in(describe(error)))
        ):
            yield (
                f"the environment has {name}, but packages are tried without it: "
                "read it in a task or a node, not at import"
            )

    def _is_neighbour_module(self, module: str | None) -> bool:
        """Return whether the author has a module beside the package that is no part of it."""
        if not self.origin or not module:
            return False
        found = Path(_origin_folder(self.origin), module.partition(".")[0])
        return found.with_suffix(".py").is_file() or found.is_dir()

    def _neighbour_advice(self, name: str) -> str:
        if self.single_file:
            return (
                f"a Python file that is a package by itself cannot import its neighbours: make a folder of them, "
                f'with modules = ["{self.single_file[:-3]}", "{name}"] in its {MANIFEST_FILE}'
            )
        return f'it is in the folder, and not in the package: add "{name}" to modules in {MANIFEST_FILE}'

    def _exists_in_node_folder(self, file: object) -> bool:
        return isinstance(file, str) and not os.path.isabs(file) and os.path.exists(os.path.join(self.folder, file))

    def _hidden_variable_in(self, text: str) -> str:
        """Return the first word of a text that is set in the node's environment, and not here."""
        hidden = set(self.hidden_variables) - set(os.environ)
        return next((word for word in re.findall(r"\w+", text) if word in hidden), "")


def local_origin(title: str) -> str:
    """Return the folder or the Python file that contents were read from; "" for what is an archive, or elsewhere."""
    place = os.path.abspath(title)
    return place if os.path.isdir(place) or (place.endswith(".py") and os.path.exists(place)) else ""


def _origin_folder(origin: str) -> str:
    return os.path.dirname(origin) if origin.endswith(".py") else origin
