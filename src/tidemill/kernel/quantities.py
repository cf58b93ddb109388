"""Quantities of resources as people write them for clusters: "500m", "1Gi", 2."""

import re
from decimal import Decimal

_PATTERN = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<suffix>[a-zA-Z]*|[eE][+-]?\d+)")
_FACTORS = {
    "": Decimal(1),
    **{
        suffix: Decimal(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def parse_quantity(value: object) -> int | float:
    """Return a quantity as a number, whole if it is: "500m" is 0.5, "1Gi" is 1073741824. It is more than 0."""
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    found = _PATTERN.fullmatch(text)
    if found is None or (factor := _factor(found["suffix"])) is None:
        raise ValueError(f"{value!r} is not a quantity such as 2, '500m' or '1Gi'")
    number = Decimal(found["number"]) * factor
    if not 0 < number < 2**63:
        raise ValueError(f"a quantity is more than 0 and less than 8Ei, not {value!r}")
    return int(number) if number == number.to_integral_value() else float(number)


def _factor(suffix: str) -> Decimal | None:
    if suffix[1:].lstrip("+-").isdigit():  # an exponent, as in 1e3
        return Decimal(10) ** int(suffix[1:]) if len(suffix) <= 4 else None
    return _FACTORS.get(suffix)
