"""SQL with names: each database keeps its statements in one file, under `-- name: ...` lines."""

import re
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries:
    """The statements of one database, by name: `queries.save_part`."""

    def __init__(self, text: str) -> None:
        _, *pieces = _NAME.split(text)
        names, bodies = pieces[::2], pieces[1::2]
        if len(set(names)) < len(names):
            raise ValueError(f"two statements have the same name: {sorted(names)}")
        self._statements = MappingProxyType(
            {name: body.strip().rstrip(";") for name, body in zip(names, bodies, strict=True)}
        )

    @classmethod
    def of(cls, package: str) -> "Queries":
        """Read a package's `queries.sql`."""
        return cls(files(package).joinpath("queries.sql").read_text("utf-8"))

    def __getattr__(self, name: str) -> str:
        try:
            return self._statements[name]
        except KeyError:
            raise AttributeError(f"no statement named '{name}'") from None
