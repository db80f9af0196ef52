"""One stored object: its bytes, and the few fields that are asked for without decoding it."""

from typing import Any, NamedTuple

import msgspec

from devcluster.apiserver.errors import Json


class Key(NamedTuple):
    """Where a kind is stored, whatever version it is served in."""

    group: str
    plural: str


class Place(NamedTuple):
    """Where an object of a kind is stored; the order of two places is the order of a LIST."""

    namespace: str
    name: str


class Entry:
    """An object at one resourceVersion, never changed.

    Kept as JSON: a decoded Pod takes ten times the memory, and handing out the one dictionary would let
    a reader change what is stored.
    """

    __slots__ = ("_fields", "deleting", "labels", "owners", "place", "raw", "uid", "version")

    def __init__(self, obj: Json, version: int) -> None:
        metadata = obj["metadata"]
        self.raw: bytes = msgspec.json.encode(obj)
        self.version = version
        self.place = Place(metadata.get("namespace", ""), metadata["name"])
        self.uid: str = metadata.get("uid", "")
        self.labels: dict[str, str] = metadata.get("labels") or {}
        self.owners: tuple[str, ...] = tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ())
        self.deleting: bool = bool(metadata.get("deletionTimestamp"))
        self._fields: dict[str, str] = {"metadata.name": self.place.name, "metadata.namespace": self.place.namespace}

    def object(self) -> Json:
        """A copy of its own for the caller."""
        obj: Json = msgspec.json.decode(self.raw)
        return obj

    def field(self, path: str) -> str:
        """The field as field selectors compare it: text, empty when absent."""
        value = self._fields.get(path)
        if value is None:
            value = self._fields[path] = as_text(dig(self.object(), path))
        return value


def dig(value: Any, path: str) -> Any:
    """The value at a dotted path, or None."""
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
