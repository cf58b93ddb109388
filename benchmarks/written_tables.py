"""Tables that programs write into pages of the documentation, between markers that stay."""

import re
from collections.abc import Callable, Mapping, Sequence

BLOCK = re.compile(r"(<!-- written: (?P<name>[a-z ]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
LEFT, RIGHT = "---", "---:"


def fill_blocks(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """Return the text of a page with what its marked blocks are to contain."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found['name']]()}\n", text)


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, others: str = RIGHT) -> str:
    """Return a table in Markdown: the first column to the left, the others, usually numbers, to the right."""
    lines = [head, [LEFT] + [others] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
