"""Where a PostgreSQL database is: its URL, and how to speak of it without telling its password."""

from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import msgspec

from tidemill.kernel.errors import StoreError

DEFAULT_PORT = 5432


class PostgresUrl(msgspec.Struct, frozen=True):
    """A database's URL, for the driver only, and its title, for everybody."""

    url: str
    title: str

    def __repr__(self) -> str:
        return f"Address({self.title!r})"

    @classmethod
    def parse(cls, url: str) -> "PostgresUrl":
        """Read a URL; StoreError if it cannot be told from its password."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        place = _host_and_port(parts, query)
        name = query.get("dbname", query.get("database", [""]))[0] or unquote(parts.path.strip("/")) or parts.username
        return cls(url, f"PostgreSQL database {name or 'of the default name'} at {place}")


def _host_and_port(parts: SplitResult, query: dict[str, list[str]]) -> str:
    """Return host and port. What looks like a piece of a password is never repeated."""
    _, at, place = parts.netloc.rpartition("@")
    place = place or query.get("host", ["localhost"])[0]
    _, colon, port = place.rpartition(":")
    torn = "@" in parts.path + parts.fragment or (not at and "@" in parts.query)
    if torn or (colon and not place.endswith("]") and not port.isdigit()):
        raise StoreError(
            "the database URL cannot be read: write postgresql://USER:PASSWORD@HOST:PORT/NAME, "
            "and percent-encode special characters of the password, such as %40 for @ and %2F for /"
        )
    is_bare = not colon or place.endswith("]")
    return f"{place}:{DEFAULT_PORT}" if is_bare and not place.startswith("/") else place
