"""Removes values that may be secrets from what others say about them.  Pure.

An API server, an admission webhook or a container runtime may repeat a whole object or command when it refuses one.
"""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

WITHHELD = "[withheld]"

SHORTEST_VALUE = 4
"""Characters; a shorter value is a number or a flag, and hiding it would hide the numbers of a quota."""


def without(words: str, values: Iterable[str]) -> str:
    """The words, with `WITHHELD` in place of each value as it is, in JSON or in a URL.

    Cut them only afterwards: of a value that was cut the rest would stay.
    """
    # The longest first: one value may be a part of another.
    for value in sorted({*values}, key=lambda value: (-len(value), value)):
        if len(value) < SHORTEST_VALUE:
            continue
        as_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
        for spelt in dict.fromkeys((value, *as_json, quote(value, safe=""), quote_plus(value))):
            words = re.sub(rf"(?<![\w-]){re.escape(spelt)}(?![\w-])", WITHHELD, words)
    return words
