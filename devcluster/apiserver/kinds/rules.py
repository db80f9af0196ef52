"""The structure of a kind's rules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from devcluster.apiserver.errors import Cause, Json
from devcluster.apiserver.names import NameRule, subdomain
from devcluster.apiserver.shapes import ANYTHING


@dataclass(frozen=True, kw_only=True)
class Rules:
    shape: Any = ANYTHING
    """The types of its fields."""
    name: NameRule = subdomain
    fill: Callable[[Json, Json | None], None] = lambda _obj, _old: None
    """Complete the object in place with defaults; `old` is the object before an update."""
    wrong: Callable[[Json, Json | None], list[Cause]] = lambda _obj, _old: []
    """The causes for which the completed object is invalid; the second argument is the object before an update."""
    counts_generations: bool = False
    """True if `metadata.generation` grows with every change of the spec."""
    created_by_update: bool = False
    """True if a PUT of an object that does not exist creates it."""
    requires_version: bool = False
    """True if a write must name the resourceVersion that it replaces; a patch names it unless it removes the field."""
