"""Removes values that may be secrets from what others say about them.  Pure.

An API server, an admission webhook or a container runtime may repeat a whole object or command when it refuses one.
"""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

WITHHELD = "[withheld]"

_IN_HTML = {ord(char): f"\\u{ord(char):04x}" for char in "&<>"}

SHORTEST_VALUE = 4
"""Characters; a shorter value is a number or a flag, and hiding it would hide the numbers of a quota."""


def without(words: str, values: Iterable[str]) -> str:
    """The words, with `WITHHELD` in place of each value as it is, in JSON or in a URL.

    Cut them only afterwards: of a value that was cut the rest would stay.
    """
    # The longest first: one value may be a part of another.
    for value in sorted(dict.fromkeys(values), key=lambda value: (-len(value), value)):
        if len(value) < SHORTEST_VALUE:
            continue
        as_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
        # Go's encoder escapes what could end a script in HTML.
        as_html = (text.translate(_IN_HTML) for text in as_json)
        for spelt in dict.fromkeys((value, *as_json, *as_html, quote(value, safe=""), quote_plus(value))):
            words = re.sub(rf"(?<![\w-]){re.escape(spelt)}(?![\w-])", WITHHELD, words)
    return words
