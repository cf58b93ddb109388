"""TOML as people write it: what is wrong with a text is told with its line."""

import re
import tomllib
from typing import Any

from tidemill.kernel.errors import DefinitionError, Location

_PLACE = re.compile(r" \(at line (\d+), column \d+\)")


def read_toml(text: str, file: str, subject: str) -> dict[str, Any]:
    """Return what a text says; DefinitionError, about the subject, if it is not TOML."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # of TOML, or of a number with too many digits
        found = _PLACE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise DefinitionError.of(subject, f"it is not TOML: {error}", Location(file, line)) from error
    except RecursionError as error:
        raise DefinitionError.of(subject, "it is nested too deeply", Location(file, 1)) from error
