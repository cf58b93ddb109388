"""Text that PostgreSQL can hold."""


def storable(text: str) -> str:
    """Return a text without what PostgreSQL's cannot hold, which is NUL and half characters: authors say anything."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "backslashreplace").decode()
