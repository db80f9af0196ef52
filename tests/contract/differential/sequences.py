"""Short sequences of calls, drawn from a seed: the same seed is the same sequence, on any server.

What only a server knows stands in a sequence as a word in angle brackets; `playing.py` puts it in.
"""

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.contract.differential.kinds import BY_PLURAL, KINDS, WEIGHTS, Json, Kind
from tests.memory.merge import merged

SHORTEST, LONGEST = 3, 12
NAMES = ("a", "b")
NAMESPACE, UID, VERSION, FIRST_VERSION, CONTINUE = "<namespace>", "<uid>", "<version>", "<first-version>", "<continue>"
"""The namespace of the test; of the object that is called: its uid, its last and first version seen; a page's token."""
JSON, MERGE, JSON_PATCH, STRATEGIC = (
    "application/json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
)
LABELS = (
    {"team": "x"},
    {"team": "y"},
    {"team": "x", "tier": "1"},
    {"team": None},
    {"bad key": "x"},
    {"team": "bad value!"},
    {"team": 5},
)
METADATA: tuple[Json, ...] = (
    *({"labels": labels} for labels in LABELS),
    {"annotations": {"note": "any text, at all"}},
    {"annotations": {"Bad Key": "x"}},
    {"finalizers": ["test.dev/hold"]},
    {"finalizers": []},
    {"finalizers": None},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace"}]},
    {"uid": UID},
    {"uid": "another"},
    {"resourceVersion": VERSION},
    {"resourceVersion": FIRST_VERSION},
    {"resourceVersion": "0"},
    {"resourceVersion": ""},
    {"resourceVersion": "text"},
    {"generation": 77},
    {"creationTimestamp": "2020-01-01T00:00:00Z"},
    {"deletionTimestamp": "2020-01-01T00:00:00Z"},
    {"unknown": 1},
    {"namespace": "elsewhere"},
    {"name": "other"},
    {"name": None},
)
LABEL_SELECTORS = (
    "team=x",
    "team",
    "!team",
    "team!=x",
    "team in (x, y)",
    "team notin (x)",
    "tier>0",
    "team=x,tier",
    "a=b=c",
)
FIELD_SELECTORS = ("metadata.name=a", "metadata.name!=a", "metadata.namespace=elsewhere", "nonsense=1", "metadata.name")


@dataclass(frozen=True)
class Step:
    method: str
    plural: str
    name: str = ""
    subresource: str = ""
    query: Json = field(default_factory=dict)
    body: Any = None
    media: str = JSON
    from_seen: bool = False
    """The body is a change to what was last seen of the object, and not the whole."""

    def __str__(self) -> str:
        path = "/".join(part for part in (self.plural, self.name, self.subresource) if part)
        query = "?" + "&".join(f"{name}={value}" for name, value in self.query.items()) if self.query else ""
        kind = f" {self.media.removeprefix('application/')}" if self.media != JSON else ""
        body = f"{kind} {'what was seen, with ' if self.from_seen else ''}{json.dumps(self.body)}"
        return f"{self.method} {path}{query}{body if self.body is not None else ''}"


def sequence(seed: int) -> list[Step]:
    return _Author(random.Random(seed)).write()


class _Author:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def write(self) -> list[Step]:
        kinds = list(dict.fromkeys(self._chance.choices(KINDS, WEIGHTS, k=self._chance.choice((1, 1, 1, 2)))))
        steps = [self._create(self._chance.choice(kinds))]
        while len(steps) < self._chance.randint(SHORTEST, LONGEST):
            steps.append(self._step(self._chance.choice(kinds)))
        return steps

    def _step(self, kind: Kind) -> Step:
        ways = {
            self._create: 4,
            self._get: 1,
            self._list: 2,
            self._update: 4,
            self._merge: 6,
            self._json_patch: 2,
            self._delete: 3,
            self._delete_many: 0.3,
            self._odd: 0.7,
        }
        if kind.status:
            ways[self._status] = 4
        if kind.scales:
            ways[self._scale] = 1
        if not kind.custom:
            ways[self._strategic] = 2
        return self._chance.choices(list(ways), list(ways.values()))[0](kind)

    def _create(self, kind: Kind) -> Step:
        name = self._name()
        body = merged(kind.base, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}})
        if self._maybe(0.4):
            body["metadata"]["labels"] = dict(self._chance.choice(LABELS[:3]))
        for _ in range(self._chance.choice((0, 0, 1, 1, 2))):
            body = merged(body, self._change(kind))
        if self._maybe(0.04):
            body["metadata"].pop("name", None)
            body["metadata"]["generateName"] = "made-"
        if self._maybe(0.04):
            body["metadata"]["name"] = self._chance.choice(("Upper", "a_b", "-a", "a.b", "x" * 64, "x" * 254))
        if self._maybe(0.04):
            body = merged(body, self._chance.choice(({"apiVersion": "v9"}, {"kind": None})))
        return Step("POST", kind.plural, query=self._write_query(), body=body)

    def _get(self, kind: Kind) -> Step:
        subresource = "status" if kind.status and self._maybe(0.2) else ""
        return Step("GET", kind.plural, self._name(), subresource)

    def _list(self, kind: Kind) -> Step:
        query: Json = {}
        if self._maybe(0.4):
            query["labelSelector"] = self._chance.choice(LABEL_SELECTORS)
        if self._maybe(0.3):
            query["fieldSelector"] = self._chance.choice((*FIELD_SELECTORS, *kind.fields, *kind.fields))
        # With a selector, a page may be short, and how short is the server's affair.
        # A controller adds a ConfigMap of its own to each namespace, which would shift the pages.
        if not query and self._maybe(0.4) and kind.plural != "configmaps":
            query["limit"] = "1"
        elif self._maybe(0.2):
            query = {"limit": "1", "continue": CONTINUE}
        return Step("GET", kind.plural, query=query)

    def _update(self, kind: Kind) -> Step:
        # A PUT of the status of a Service that is missing fails as the creation of half a Service.
        subresource = "status" if kind.status and kind.plural != "services" and self._maybe(0.3) else ""
        change = self._status_change(kind) if subresource else self._change(kind)
        if self._maybe(0.3):
            precondition = self._chance.choice(
                ({"resourceVersion": None}, {"resourceVersion": FIRST_VERSION}, {"uid": "another"}, {"uid": None})
            )
            change = merged_patch(change, {"metadata": precondition})
        # Where a PUT creates, a deletion that was claimed is believed.
        (change.get("metadata") or {}).pop("deletionTimestamp", None)
        return Step("PUT", kind.plural, self._name(), subresource, self._write_query(), change, from_seen=True)

    def _merge(self, kind: Kind) -> Step:
        return Step("PATCH", kind.plural, self._name(), "", self._write_query(), self._changes(kind), MERGE)

    def _strategic(self, kind: Kind) -> Step:
        return Step("PATCH", kind.plural, self._name(), "", self._write_query(), self._changes(kind), STRATEGIC)

    def _json_patch(self, kind: Kind) -> Step:
        operations = self._chance.choice(kind.operations) if kind.operations else []
        return Step("PATCH", kind.plural, self._name(), "", self._write_query(), list(operations), JSON_PATCH)

    def _status(self, kind: Kind) -> Step:
        change = self._status_change(kind)
        if self._maybe(0.2):
            change = merged_patch(change, {"metadata": self._chance.choice(METADATA)})
        return Step("PATCH", kind.plural, self._name(), "status", self._write_query(), change, MERGE)

    def _scale(self, kind: Kind) -> Step:
        if self._maybe(0.4):
            return Step("GET", kind.plural, self._name(), "scale")
        replicas = self._chance.choice((2, 4, 0, -1, 1000))
        body: Json = {"spec": {"replicas": replicas}}
        if self._maybe(0.2):
            body["metadata"] = {"resourceVersion": FIRST_VERSION}
        if self._maybe(0.7):
            return Step("PATCH", kind.plural, self._name(), "scale", {}, body, MERGE)
        name = self._name()
        body |= {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name, "namespace": NAMESPACE}}
        return Step("PUT", kind.plural, name, "scale", {}, body)

    def _delete(self, kind: Kind) -> Step:
        body: Json = {}
        if self._maybe(0.4):
            body["preconditions"] = dict(
                self._chance.choice(
                    (
                        {"uid": UID},
                        {"uid": UID},
                        {"uid": "another"},
                        {"resourceVersion": VERSION},
                        {"resourceVersion": FIRST_VERSION},
                    )
                )
            )
        if self._maybe(0.3):
            body["gracePeriodSeconds"] = self._chance.choice((0, 1, 5, 60, -1))
        if self._maybe(0.2):
            body["propagationPolicy"] = self._chance.choice(("Background", "Background", "Sideways"))
        # A pod that would end shows a version that nothing else has.
        query = {"dryRun": "All"} if kind.plural != "pods" and self._maybe(0.1) else {}
        if body:
            body |= {"kind": "DeleteOptions", "apiVersion": "v1"}
        return Step("DELETE", kind.plural, self._name(), "", query, body or None)

    def _delete_many(self, kind: Kind) -> Step:
        query = {"labelSelector": self._chance.choice(LABEL_SELECTORS)} if self._maybe(0.7) else {}
        if kind.plural == "configmaps":
            query = {"labelSelector": "team=x"}
        return Step("DELETE", kind.plural, query=query)

    def _odd(self, kind: Kind) -> Step:
        """What no client means to send."""
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a"}} | kind.base
        named = "" if kind.custom else self._name()
        return self._chance.choice(
            (
                Step("PATCH", kind.plural, self._name(), body={"a": 1}, media="text/plain"),
                Step("PATCH", kind.plural, self._name(), body=[1], media=MERGE),
                Step("PATCH", kind.plural, self._name(), body={"a": 1}, media=JSON_PATCH),
                Step("PATCH", kind.plural, self._name(), body={"metadata": "text"}, media=MERGE),
                Step("PUT", kind.plural, self._name(), body=[]),
                Step("PUT", kind.plural, self._name(), "nonsense", body={}),
                Step("GET", kind.plural, self._name(), "nonsense"),
                Step("POST", kind.plural, named, body=whole),
                Step("POST", kind.plural, body="text"),
                Step("POST", kind.plural, body=whole | {"kind": "Other"}),
                Step("GET", kind.plural, query={"limit": "-1"}),
                Step("GET", kind.plural, query={"limit": "x"}),
                Step("GET", kind.plural, query={"resourceVersion": "x"}),
                Step("GET", kind.plural, query={"continue": "nonsense"}),
                Step("PATCH", kind.plural, self._name(), query={"dryRun": "Some"}, body={}, media=MERGE),
                Step("PATCH", kind.plural, self._name(), query={"fieldValidation": "x"}, body={}, media=MERGE),
                Step("PATCH", kind.plural, self._name(), query={}, body={}, media=STRATEGIC),
                Step("PATCH", kind.plural, self._name(), "status", body=kind.base, media=MERGE),
            )
        )

    def _changes(self, kind: Kind) -> Json:
        change = self._change(kind)
        return merged_patch(change, self._change(kind)) if self._maybe(0.3) else change

    def _change(self, kind: Kind) -> Json:
        if self._maybe(0.3):
            return {"metadata": copy.deepcopy(self._chance.choice(METADATA))}
        return copy.deepcopy(self._chance.choice(kind.changes))

    def _status_change(self, kind: Kind) -> Json:
        return copy.deepcopy(self._chance.choice(kind.status))

    def _write_query(self) -> Json:
        query: Json = {}
        if self._maybe(0.08):
            query["dryRun"] = "All"
        if self._maybe(0.15):
            query["fieldValidation"] = self._chance.choice(("Strict", "Warn", "Ignore"))
        return query

    def _name(self) -> str:
        return NAMES[0] if self._maybe(0.75) else NAMES[1]

    def _maybe(self, probability: float) -> bool:
        return self._chance.random() < probability


def merged_patch(one: Json, other: Json) -> Json:
    """Both merge patches in one, in which null still removes."""
    both = dict(one)
    for name, value in other.items():
        inner = both.get(name)
        both[name] = merged_patch(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def kinds_of(steps: Sequence[Step]) -> list[Kind]:
    return [BY_PLURAL[plural] for plural in dict.fromkeys(step.plural for step in steps)]
