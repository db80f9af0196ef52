"""Reads what another program wrote: numbers, any JSON, and JSON that is nested too deeply for the decoder.  Pure."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Every error of msgspec for bytes: also for text that is not UTF-8, and for JSON that is nested too deeply."""

LONGEST_NUMBER = 20
"""Digits of an unsigned 64-bit number."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\],:]', re.DOTALL)


def whole_number(text: str, digits: int = LONGEST_NUMBER) -> int | None:
    """The number that `text` spells in at most so many digits; None for any other text."""
    # Python also takes the digits of other scripts, and refuses more than some thousand of them.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def at(value: Any, *path: str) -> Any:
    """The value at a path in any JSON; None if something else is on the way."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none if the value is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def parts(raw: bytes | msgspec.Raw) -> Iterator[tuple[str, msgspec.Raw]]:
    """The members of a JSON object or the items of an array as they stand, however deeply nested; items have no name.

    An API server takes ten times as many levels as Python follows.
    """
    raw, depth, name, begin = bytes(raw), 0, "", 0
    for token in _TOKEN.finditer(raw):
        mark = token[0]
        if depth == 1 and mark in (b",", b"}", b"]"):
            if part := raw[begin : token.start()].strip():
                yield name, msgspec.Raw(part)
            name, begin = "", token.end()
        elif depth == 1 and mark == b":":
            name, begin = raw[begin : token.start()].strip().strip(b'"').decode(errors="replace"), token.end()
        if mark in (b"{", b"["):
            depth += 1
            begin = token.end() if depth == 1 else begin
        elif mark in (b"}", b"]"):
            depth -= 1
