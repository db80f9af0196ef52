"""Changes an input where it has structure: its lines, and the JSON in one of them."""

from collections.abc import Iterator, MutableMapping, MutableSequence, Sequence
from random import Random
from typing import Any

import msgspec

from shared.untrusted import MALFORMED

DEEP = msgspec.Raw(b"[" * 3_000 + b"]" * 3_000)
"""Deeper than Python follows; an API server takes 10,000 levels."""
ODD: Sequence[object] = (
    None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**30, "", "0", "٣", "²", "a" * 300, "é\0\n", [], {}, [None],
    {"": None}, DEEP,
    msgspec.Raw(rb'"\ud800"'), msgspec.Raw(b'"\xff"'), msgspec.Raw(b"1e400"), msgspec.Raw(b"9" * 5_000),
)  # fmt: skip
"""Values that a writer of such a document would not write."""

Place = tuple[MutableMapping[str, Any] | MutableSequence[Any], Any]


def mutated(data: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """`data` with one change; lines of `others` may come in."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    match chance.randrange(8):
        case 0:
            del lines[at]
        case 1:
            lines.insert(chance.randrange(len(lines) + 1), lines[at])
        case 2:
            lines.insert(at, chance.choice(chance.choice(others).split(b"\n")))
        case 3:
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        case _:
            lines[at] = with_odd_json(lines[at], chance)
    return b"\n".join(lines)


def with_odd_json(line: bytes, chance: Random) -> bytes:
    """The line with one part of its JSON removed, or replaced by an odd value or another part."""
    begin = line.find(b"{")
    try:
        document = msgspec.json.decode(line[begin:]) if begin >= 0 else None
    except MALFORMED:
        document = None
    places = [*_places(document)]
    if not places:
        return line + chance.randbytes(2)
    parent, key = chance.choice(places)
    if chance.random() < 0.2:
        del parent[key]
    elif chance.random() < 0.3:
        other, from_there = chance.choice(places)
        # As text: a part may contain its own parent.
        parent[key] = msgspec.Raw(msgspec.json.encode(other[from_there]))
    else:
        parent[key] = chance.choice(ODD)
    return line[:begin] + msgspec.json.encode(document)


def _places(value: Any) -> Iterator[Place]:
    """Every member and item of a document with the container that holds it."""
    found: list[Any] = [value]
    while found:
        one = found.pop()
        for key, inner in one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ():
            yield one, key
            found.append(inner)
