"""One stored object: its bytes, and the few fields that are read without decoding it."""

from typing import Any, NamedTuple

import msgspec

from devcluster.apiserver.errors import Json


class Key(NamedTuple):
    """The store's key of a kind, the same in every served version."""

    group: str
    plural: str


class Place(NamedTuple):
    """The store's key of an object within its kind; places sort in the order of a LIST."""

    namespace: str
    name: str


class Entry:
    """An object at one resourceVersion, never changed.

    It is kept as JSON: a decoded Pod takes ten times the memory, and a shared dictionary could be changed by a reader.
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
        """The object, decoded anew for each caller."""
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
