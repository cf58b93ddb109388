"""SQL with names: each database keeps its statements in files beside its code, under `-- name: ...` lines."""

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries:
    """The statements of one database, by name: `queries.save_part`."""

    def __init__(self, *texts: str) -> None:
        pieces = [piece for text in texts for piece in _NAME.split(text)[1:]]
        names, bodies = pieces[::2], pieces[1::2]
        if len(set(names)) < len(names):
            raise ValueError(f"two statements have the same name: {sorted(names)}")
        # As attributes of its own: they are read several times for every write.
        self.__dict__.update({name: body.strip().rstrip(";") for name, body in zip(names, bodies, strict=True)})

    @classmethod
    def of(cls, package: str) -> "Queries":
        """Read the `*.sql` files of a package, but not its migrations."""
        found = {file.name: file for file in files(package).iterdir() if file.name.endswith(".sql")}
        return cls(*(found[name].read_text("utf-8") for name in sorted(found)))

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no statement named '{name}'")
