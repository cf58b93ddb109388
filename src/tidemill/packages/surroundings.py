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
from tidemill.packages.manifest import MANIFEST

_OF_ITS_OWN = (NameError, AttributeError, ImportError, SyntaxError)
"""Errors in which a word that is also the name of a variable of the environment means something else."""


class Given(msgspec.Struct, frozen=True):
    """What of the node's own a package finds while it is tried."""

    environment: list[tuple[bytes, bytes]]
    path: list[str]
    """Where modules are looked for."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the node is that tries a package, and how much of that the package finds."""

    folder: str
    """In which the node works."""

    variables: list[str]
    """What is set in the node's environment; only the names."""

    origin: str = ""
    """The folder or the Python file that the author has, if it is on this machine."""

    given: Given | None = None

    @classmethod
    def bare(cls, origin: str = "") -> Self:
        """Return what is around code of others: nothing of this process, but what is missed can be named."""
        return cls(folder=os.getcwd(), variables=[name for name in os.environ if name.isidentifier()], origin=origin)

    @classmethod
    def shared(cls, origin: str = "") -> Self:
        """Return what is around the developer's own code: everything that is here."""
        authors = os.path.realpath(_folder_of(origin)) if origin else None  # of which only what is declared is found
        path = [one for one in sys.path if os.path.realpath(one) != authors]
        return cls(folder=os.getcwd(), variables=[], origin=origin, given=Given(list(os.environb.items()), path))

    def enter(self, kept: str) -> None:
        """Let this process find what is given; the variable that is `kept` stays as it is."""
        if self.given is None:
            return
        own = os.environ.get(kept, "")
        os.environ.clear()
        for name, value in self.given.environment:
            os.environb[name] = value
        os.environ[kept] = own
        time.tzset()
        sys.path[:] = self.given.path
        with suppress(OSError):  # it is gone: then the node works nowhere, either
            os.chdir(self.folder)

    @property
    def file(self) -> str:
        """The name of the Python file that is a package by itself; "" of any other package."""
        return os.path.basename(self.origin) if self.origin.endswith(".py") else ""

    def advice(self, error: BaseException) -> str:
        """Return what to do about an error that only these surroundings have caused; "" if they have not."""
        return next(self._advices(error), "")

    def _advices(self, error: BaseException) -> Iterator[str]:
        if isinstance(error, ModuleNotFoundError) and self._is_neighbour(error.name):
            yield self._about_neighbour(str(error.name).partition(".")[0])
        elif isinstance(error, ModuleNotFoundError):
            yield "install it where packages are loaded, or put it into the package"
        if self.given is None and isinstance(error, FileNotFoundError) and self._is_here(error.filename):
            yield (
                f"it is in {self.folder}, but packages are tried in an empty folder: "
                "put it into the package and open it next to `__file__`, or open it in a task or a node"
            )
        if self.given is None and not isinstance(error, _OF_ITS_OWN) and (name := self._hidden_in(describe(error))):
            yield (
                f"the environment has {name}, but packages are tried without it: "
                "read it in a task or a node, not at import"
            )

    def _is_neighbour(self, module: str | None) -> bool:
        """Return whether the author has a module beside the package that is no part of it."""
        if not self.origin or not module:
            return False
        found = Path(_folder_of(self.origin), module.partition(".")[0])
        return found.with_suffix(".py").is_file() or found.is_dir()

    def _about_neighbour(self, name: str) -> str:
        if self.file:
            return (
                f"a Python file that is a package by itself cannot import its neighbours: make a folder of them, "
                f'with modules = ["{self.file[:-3]}", "{name}"] in its {MANIFEST}'
            )
        return f'it is in the folder, and not in the package: add "{name}" to modules in {MANIFEST}'

    def _is_here(self, file: object) -> bool:
        return isinstance(file, str) and not os.path.isabs(file) and os.path.exists(os.path.join(self.folder, file))

    def _hidden_in(self, text: str) -> str:
        """Return the first word of a text that is set in the node's environment, and not here."""
        hidden = set(self.variables) - set(os.environ)
        return next((word for word in re.findall(r"\w+", text) if word in hidden), "")


def origin_of(title: str) -> str:
    """Return the folder or the Python file that contents were read from; "" for what is an archive, or elsewhere."""
    place = os.path.abspath(title)
    return place if os.path.isdir(place) or (place.endswith(".py") and os.path.exists(place)) else ""


def _folder_of(origin: str) -> str:
    return os.path.dirname(origin) if origin.endswith(".py") else origin
