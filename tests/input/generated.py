"""Documents from the structural schema of a kind, and documents against it, each from a seed.

A schema says little about what belongs together, so that a document of chance alone is refused for a missing role.
So most of them are a document that runs, with some parts replaced by what the schema allows there.
"""

import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from devcluster.apiserver.schema import apply_defaults, child
from shared.job.naming import ACCEPT_HISTORY, RESTART
from tests.crds.admission import schema
from tests.frameworks.documents import Document, changed
from tests.frameworks.full import SECRET
from tests.fuzz.mutation import with_odd_json
from tests.input.kinds import Kind

OPEN = "x-kubernetes-preserve-unknown-fields"
UNDECLARED = (
    "initContainers", "containers", "resources", "limits", "env", "envFrom", "volumes", "volumeMounts", "ports",
    "dnsConfig", "searches", "labels", "annotations", "name", "value", "valueFrom", "nvidia.com/gpu", "hostname",
    "alpha.kubernetes.io/nvidia-gpu", "containerPort", "securityContext", "terminationMessagePolicy",
)  # fmt: skip
"""Fields of pods that the definitions leave to Kubernetes."""
HUGE = "x" * 300_000
"""More than an event holds."""
TEXTS = (
    "",
    "a",
    "main",
    "True",
    "é",
    "\0",
    " ",
    "a=b",
    "-a",
    "../a",
    "$(rm a)",
    SECRET,
    f"{SECRET}-more",
    "x" * 300,
    HUGE,
)
PATTERNED: Mapping[str, tuple[str, ...]] = {
    "^[0-9a-z]*$": ("", "1kkf", "0"),
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": ("main", "a", "0-0", "x" * 63),
    "^[^=]+$": ("A", "é", "-x", " ", "\0"),
    "^(auto|cpu|gpu|xpu|0*[1-9][0-9]{0,5})?$": ("", "auto", "gpu", "1", "0008", "999999"),
    "^(/[^:]*)?$": ("", "/", "/root/.ssh", "/é /../x"),
}
"""Texts that match a pattern of a definition; one that is missing here fails."""
NAMES = (
    *("resnet",) * 8,
    *("x", "x" * 50, "x" * 51, "x" * 63, "a-" * 100 + "a", "1st", "a.b", "x" * 253, "worker-0", "resnet-worker-1"),
)
"""As an API server takes them: DNS subdomains."""
HOSTILE_NAMES = ("", ".", "..", "-", "a/b", "a" * 10_000, SECRET, "é", "\0", "a\nb")
DEEP = 300
"""Levels that Python follows, twice over."""
MOST = 3
"""Members or items beyond those that have to be there."""


def document_of(kind: Kind, chance: Random) -> Document:
    """What the definition of the kind allows, as the API server keeps it."""
    full, whole = kind.full, schema(kind.full)
    parts = whole["properties"]
    if chance.random() < 0.2:
        spec = allowed(parts["spec"], chance, full["spec"])
    else:
        spec = _with_parts(full, parts["spec"], chance)
    document = {"apiVersion": full["apiVersion"], "kind": full["kind"], "metadata": _metadata(kind, chance)}
    document["spec"] = spec
    if chance.random() < 0.2:
        document["status"] = allowed(parts["status"], chance, {"conditions": [{"type": "Running", "status": "True"}]})
    apply_defaults(whole, document)
    return document


def hostile_document(kind: Kind, chance: Random) -> bytes:
    """What the definition of the kind does not allow, mostly: an older one may let it through."""
    full, name = kind.full, chance.choice(HOSTILE_NAMES if chance.random() < 0.2 else NAMES)
    written = {"spec": full["spec"], "status": {}}
    if chance.random() < 0.1:
        written = {"spec": anything(chance), "status": anything(chance)}
    line = msgspec.json.encode(written)
    for _ in range(chance.randint(1, 3)):
        line = with_odd_json(line, chance)
    # The rest is the API server's.
    return b'{"metadata":%s,%s' % (msgspec.json.encode(full["metadata"] | {"name": name}), line.removeprefix(b"{"))


def allowed(known: Document, chance: Random, like: Any = None) -> Any:
    """What a schema allows; `like` is an example of it."""
    match known.get("type"):
        case "object":
            return _object(known, chance, like if isinstance(like, dict) else {})
        case "array":
            least, most = known.get("minItems", 0), known.get("maxItems", 1_000)
            count = chance.randint(least, min(most, least + MOST))
            examples = like if isinstance(like, list) and like else [None]
            items = [allowed(known["items"], chance, chance.choice(examples)) for _ in range(count)]
            is_set = known.get("x-kubernetes-list-type") == "set"
            return [item for at, item in enumerate(items) if item not in items[:at]] if is_set else items
        case _ if like is not None and chance.random() < 0.5:
            return like
        case "integer":
            least, most = known.get("minimum", -(2**31)), known.get("maximum", 2**31 - 1)
            few = max(least, 0)
            if chance.random() < 0.8:
                return chance.randint(few, min(few + 4, most))
            return chance.choice([least, most, chance.randint(least, most)])
        case "boolean":
            return chance.random() < 0.5
        case "string":
            return _text(known, chance)
    return anything(chance)


def anything(chance: Random, levels: int = 3) -> Any:
    """Any JSON that an API server keeps."""
    if levels and chance.random() < 0.4:
        return {chance.choice(UNDECLARED): anything(chance, levels - 1) for _ in range(chance.randrange(MOST))}
    if levels and chance.random() < 0.4:
        return [anything(chance, levels - 1) for _ in range(chance.randrange(MOST))]
    if chance.random() < 0.02:
        return _nested(DEEP)
    return chance.choice([None, True, False, 0, 1, -1, 2**63 - 1, 1.5, 1e300, chance.choice(TEXTS)])


def _object(known: Document, chance: Random, like: Document) -> Document:
    declared, required = known.get("properties", {}), known.get("required", ())
    # Fields that an example has are more likely to belong together.
    found = {
        name: allowed(part, chance, like.get(name))
        for name, part in declared.items()
        if name in required or chance.random() < (0.8 if name in like else 0.2)
    }
    additional = known.get("additionalProperties")
    if isinstance(additional, dict):
        least, most = known.get("minProperties", 0), known.get("maxProperties", 1_000)
        # The path of a problem repeats a name.
        names = [*like] if like and chance.random() < 0.8 else [*like, *(text for text in TEXTS if SECRET not in text)]
        chosen = chance.sample(names, min(len(names), chance.randint(least, min(most, least + MOST))))
        examples = [*like.values()] or [None]
        return {name: allowed(additional, chance, like.get(name, examples[0])) for name in chosen}
    if known.get(OPEN) and chance.random() < 0.3:
        name = chance.choice(UNDECLARED)
        if name not in declared:
            found[name] = anything(chance)
    return found


def _text(known: Document, chance: Random) -> str:
    if "enum" in known:
        return str(chance.choice(known["enum"]))
    if known.get("format") == "date-time":
        return chance.choice(["2030-01-01T00:00:00Z", "2030-01-01T00:00:00.000001+02:00"])
    texts = PATTERNED[known["pattern"]] if "pattern" in known else TEXTS
    fitting = [
        text
        for text in texts
        if known.get("minLength", 0) <= len(text) <= known.get("maxLength", len(HUGE))
        and re.search(known.get("pattern", ""), text)
    ]
    return chance.choice(fitting)


def _nested(levels: int) -> Any:
    found: Any = {}
    for _ in range(levels):
        found = {"a": found}
    return found


def _metadata(kind: Kind, chance: Random) -> Document:
    known = {"name": chance.choice(NAMES), "namespace": "team-a", "uid": "uid-1", "resourceVersion": "7"}
    suspend = kind.framework.definition.suspend_annotation if kind.framework is not None else ""
    notes = [name for name in (RESTART, ACCEPT_HISTORY, suspend) if name and chance.random() < 0.1]
    found = known | {"generation": chance.randint(1, 9)}
    if notes:
        found["annotations"] = {name: chance.choice(("true", "7:abc", *TEXTS[:-1])) for name in notes}
    return found


def _with_parts(full: Document, known: Document, chance: Random) -> Any:
    """The spec of a document that runs, with some of its parts replaced."""
    document = full
    for path, part, like in chance.sample([*_declared(full["spec"], known, "spec")], chance.randint(1, 4)):
        try:
            document = changed(document, path, allowed(part, chance, like))
        except (TypeError, KeyError, IndexError):
            # A part around it was replaced.
            continue
    return document["spec"]


def _declared(value: Any, known: Document, path: str) -> Iterator[tuple[str, Document, Any]]:
    """The path of each part of a document that the schema speaks of, its schema, and the part."""
    yield path, known, value
    if isinstance(value, dict):
        for name, inner in value.items():
            # A dot separates the steps of a path.
            if "." not in name and isinstance(part := child(known, name), dict):
                yield from _declared(inner, part, f"{path}.{name}")
    elif isinstance(value, list) and "items" in known:
        for index, inner in enumerate(value):
            yield from _declared(inner, known["items"], f"{path}[{index}]")
