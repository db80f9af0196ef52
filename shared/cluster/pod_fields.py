"""The fields of a pod's spec in the newest Kubernetes, by type: an API server drops or refuses all others.  Pure.

`pod_fields.txt` has the names alone, a type on each line, from the OpenAPI document of Kubernetes 1.37;
`python -m tests.docs.pod_fields` writes it anew.  A newer API server may know more: it has the last word.
"""

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".txt")


@lru_cache(maxsize=1)
def types() -> Mapping[str, Mapping[str, str]]:
    """Type → field → the type of the field, or of its items; empty for a field without members."""
    found: dict[str, dict[str, str]] = {}
    for line in FILE.read_text().replace("\n  ", " ").splitlines():
        name, _, fields = line.partition(": ")
        found[name] = {field: kind for field, _, kind in (each.partition("=") for each in fields.split())}
    return found


def unknown(value: Any, kind: str = "PodSpec", path: str = "spec") -> Iterator[tuple[dict[str, Any], str, str]]:
    """The fields that the type lacks: each with the object that has it, its name and its path."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown(item, kind, f"{path}[{index}]")
    elif isinstance(value, dict):
        known = types()[kind]
        for name, member in value.items():
            where = f"{path}.{name}" if path else name
            if name not in known:
                yield value, name, where
            elif known[name] and member is not None:
                yield from unknown(member, known[name], where)


def meant(path: str) -> str:
    """The field that a misspelt one was probably meant to be; empty if there is none like it.

    `path` begins with `spec`; the steps before the last one are fields.
    """
    kind = "PodSpec"
    *steps, name = path.split(".")
    for step in steps[1:]:
        kind = types().get(kind, {}).get(step.partition("[")[0], "")
    return meant_of(name, types().get(kind, ()))


def meant_of(name: str, known: Collection[str]) -> str:
    """The one of these names that is most like it; empty if none is."""
    return next(iter(get_close_matches(name, known, 1, 0.8)), "")
