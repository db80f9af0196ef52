"""What a run came to: the objects of its namespace, compared with those of a reference run.

A uid becomes the name of its object, so that an owner is compared and not an accident.  Values that
differ between undisturbed runs are masked in all.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from shared.cluster.kinds import EVENTS

Manifest = dict[str, Any]
Leaves = dict[str, Any]
"""The values of an object by their paths."""
State = dict[str, Leaves]
"""By kind and name."""
Mask = tuple[str, str]
"""A kind and a path, with `*` for each place in a list."""

HISTORY = "status.history"
"""How many events the log has is no part of an end: a service that begins again may see in two steps what another one
saw in one.  That the status is the log's at this head is asked for by itself.
"""
BOOKKEEPING = "metadata.managedFields"
"""The API server's own notes about who wrote what when."""
AUTHOR = "muster.dev/"
"""Other Kubernetes Events are those of kube-scheduler."""
TOLD = "Events"
"""How the Kubernetes Events of an object are called, in the order of their times."""
ROOT_CERTIFICATE = "kube-root-ca.crt"
"""The ConfigMap that Kubernetes puts into every namespace."""

_PLACE = re.compile(r"\.\d+(?=\.|$)")


def end_state(objects: Iterable[tuple[str, Manifest]], namespace: str) -> State:
    """The objects of a namespace with their kinds, as leaves; the Kubernetes Events of one object as one list."""
    things = [(kind, thing) for kind, thing in objects if thing["metadata"]["name"] != ROOT_CERTIFICATE]
    named = {f"{kind} {thing['metadata']['name']}": thing for kind, thing in things if kind != EVENTS.kind}
    events = [thing for kind, thing in things if kind == EVENTS.kind and _ours(thing)]
    # An object that is gone has its uid in its Events.
    names = {
        about["uid"]: f"<{about['kind']} {about['name']}>" for about in (event["involvedObject"] for event in events)
    }
    names |= {thing["metadata"]["uid"]: f"<{name}>" for name, thing in named.items()} | {namespace: "<namespace>"}
    accidents = re.compile("|".join(map(re.escape, names)))

    def plain(value: Any) -> Any:
        return accidents.sub(lambda found: names[found[0]], value) if isinstance(value, str) else value

    # A Secret has the uid of its job in its name.
    end: State = {plain(name): {path: plain(value) for path, value in _leaves(thing)} for name, thing in named.items()}
    for event in sorted(events, key=lambda event: str(event["eventTime"])):
        about = event["involvedObject"]
        told = end.setdefault(f"{TOLD} {about['kind']} {about['name']}", {TOLD: []})[TOLD]
        told.append(plain(f"{event['type']} {event['reason']} of {about['uid']}: {event['message']}"))
    return end


def learned(one: State, other: State) -> frozenset[Mask]:
    """The values that differ between two undisturbed runs."""
    return frozenset(
        (_kind(name), _anywhere(path))
        for name in one.keys() & other.keys()
        for path in one[name].keys() | other[name].keys()
        if one[name].get(path) != other[name].get(path) and path != TOLD
    )


def differences(references: Sequence[State], end: State, masked: frozenset[Mask]) -> list[str]:
    """Each object and each value in which a run did not end as the undisturbed run that it is most like."""
    return min((_differences(reference, end, masked) for reference in references), key=len)


def _differences(reference: State, end: State, masked: frozenset[Mask]) -> list[str]:
    found = [f"{name} is missing" for name in reference if name not in end]
    found += [f"{name} is one too many" for name in end if name not in reference]
    for name in sorted(reference.keys() & end.keys()):
        expected, shown = reference[name], end[name]
        found += [
            f"{name} {path}: {shown.get(path)!r}, expected {expected.get(path)!r}"
            for path in sorted(expected.keys() | shown.keys())
            if not _same(path, expected.get(path), shown.get(path)) and (_kind(name), _anywhere(path)) not in masked
        ]
    return found


def _same(path: str, expected: Any, shown: Any) -> bool:
    """Whether a value is the expected one.

    A Kubernetes Event says what is: one that is late is not made up for once another one has followed.
    """
    if path != TOLD:
        return bool(expected == shown)
    rest = iter(expected)
    return bool(shown[-1] == expected[-1]) and all(told in rest for told in shown)


def _ours(event: Manifest) -> bool:
    return str(event.get("reportingComponent")).startswith(AUTHOR)


def _kind(name: str) -> str:
    return name.partition(" ")[0]


def _anywhere(path: str) -> str:
    return _PLACE.sub(".*", path)


def _leaves(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    if path in (HISTORY, BOOKKEEPING):
        return
    if isinstance(value, dict | list) and value:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in inner:
            yield from _leaves(each, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
