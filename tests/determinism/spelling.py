"""Values as bytes that keep the order in which a collection is iterated: a set in a state has different bytes by hash
seed, and a type that this file does not know is an error instead of a guess.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec


class Spelling:
    """Remembers the values that it spelled before: from one event to the next most parts of a job stay."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[msgspec.Struct, msgspec.Raw]] = {}
        """By identity, with the value itself, so that no other one gets its identity."""

    def __call__(self, value: object) -> bytes:
        """The same bytes in two processes only if every collection within has the same order in both."""
        return msgspec.json.encode(self._plain(value))

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, msgspec.Struct):
            known = self._known.get(id(value))
            if known is None:
                known = self._known[id(value)] = value, msgspec.Raw(msgspec.json.encode(self._fields(value)))
            return known[1]
        if isinstance(value, bytes):
            return value.decode(errors="backslashreplace")
        if isinstance(value, Mapping):
            return [[self._plain(key), self._plain(inner)] for key, inner in value.items()]
        if isinstance(value, Collection):
            return [self._plain(inner) for inner in value]
        raise TypeError(f"no order is known of {type(value).__name__}")

    def _fields(self, value: msgspec.Struct) -> list[Any]:
        return [type(value).__name__, *([name, self._plain(getattr(value, name))] for name in value.__struct_fields__)]
