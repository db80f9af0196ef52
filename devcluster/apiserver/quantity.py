"""Kubernetes quantities: `500m`, `2Gi`, `1e3`."""

import re
from decimal import Decimal

PATTERN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d{1,3}|[KMGTPE]i|[numkMGTPE])?")
SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def parse_quantity(text: str | float) -> Decimal:
    """The value of a quantity.  Raises `ValueError` with the rule."""
    match = PATTERN.fullmatch(str(text))
    if not match:
        raise ValueError(RULE)
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix[:1] in "eE" and len(suffix) > 1:
        return number.scaleb(int(suffix[1:]))
    return number * SUFFIXES.get(suffix, Decimal(1))
