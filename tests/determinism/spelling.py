"""Values as bytes that keep the order in which a collection is iterated: a set in a state has different bytes by hash
seed, and a type that this file does not know is an error instead of a guess.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec


def spelled(value: object) -> bytes:
    """The same bytes in two processes only if every collection within has the same order in both."""
    return msgspec.json.encode(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.decode(errors="backslashreplace")
        case msgspec.Struct():
            fields = [[name, _plain(getattr(value, name))] for name in value.__struct_fields__]
            return [type(value).__name__, *fields]
        case Mapping():
            return [[_plain(key), _plain(inner)] for key, inner in value.items()]
        case Collection():
            return [_plain(inner) for inner in value]
        case _:
            raise TypeError(f"no order is known of {type(value).__name__}")
