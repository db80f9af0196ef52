"""Any JSON, and manifests spoilt with it."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.frameworks.documents import ABSENT, Document, changed, scale_in, scale_out, training_job

SECRET = "s3cr3t"

TEXTS = st.one_of(st.text(max_size=8), st.just(SECRET), st.text(max_size=4).map(lambda text: SECRET + text))
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TEXTS, st.sampled_from(["", "1" * 5000])
)
HUGE = st.one_of(st.integers(), st.just(10**4000))
"""Numbers that JSON can hold and an API server never keeps as integers."""
NAMES = st.one_of(
    TEXTS, st.sampled_from(["spec", "template", "containers", "name", "image", "count", "limits", "volumeMounts"])
)


def json(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
        max_leaves=9,
    )


KEPT_JSON = json(LEAVES)
"""What an API server may keep."""
JSON = json(st.one_of(LEAVES, HUGE))
DEPTHS: st.SearchStrategy[object] = st.just({"a": [[[[[[[[[[]]]]]]]]]]})

FULL_JOB = changed(
    changed(
        changed(training_job(), "spec.slotsPerWorker", 2),
        "spec.etReplicaSpecs.launcher.template.metadata",
        {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    ),
    "spec.etReplicaSpecs.launcher.template.spec",
    {
        "containers": [
            {
                "name": "main",
                "image": "horovod",
                "env": [{"name": "TOKEN", "value": SECRET}],
                "volumeMounts": [{"name": "data", "mountPath": "/job/data"}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "dnsConfig": {"searches": ["example.com"]},
    },
)
FULL_IN = changed(scale_in(podNames=["a", "b"]), "spec.env", [{"name": "TOKEN", "value": SECRET}])
FULL_OUT = changed(changed(scale_out(), "spec.script", SECRET), "spec.timeout", 9)


def paths(value: Any, path: str) -> Iterator[str]:
    """Of every part of a document."""
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from paths(inner, f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}")


def spoilt(document: Document, values: st.SearchStrategy[Any] = JSON) -> st.SearchStrategy[Document]:
    """The document with some of its parts replaced or taken away."""
    # GPU's name has a dot, which separates the steps of a path here.
    places = [path for path in paths(document["spec"], "spec") if "nvidia" not in path]

    def spoil(changes: list[tuple[str, object]]) -> Document:
        spoiled = document
        for path, value in changes:
            try:
                spoiled = changed(spoiled, path, value)
            except (TypeError, KeyError, IndexError):
                continue
        return spoiled

    others = st.one_of(values, DEPTHS, st.just(ABSENT), st.integers(-1, 12))
    return st.lists(st.tuples(st.sampled_from(places), others), min_size=1, max_size=3).map(spoil)


REQUEST_SPECS = st.one_of(
    JSON, *(spoilt(full).map(lambda request: request.get("spec")) for full in (FULL_IN, FULL_OUT))
)
