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
    """`metadata.generation` grows with every change of the spec."""
    created_by_update: bool = False
    """A PUT of what does not exist creates it."""
    requires_version: bool = False
    """A write has to name the resourceVersion that it replaces; a patch names it unless it removes the field."""
