"""Writes `pod_fields.txt` from the models of the installed client: `python -m tests.docs.pod_fields`.

The development cluster has a copy, as it is a distribution of its own.
"""

import re
from textwrap import fill
from typing import Any

import kubernetes.client

from devcluster.apiserver import pods
from shared.cluster import pod_fields

FILES = (pod_fields.FILE, pods.FIELDS)

_MODEL = re.compile(r"\b(?:Core)?V1(\w+)")


def of_client() -> dict[str, dict[str, str]]:
    """Every type below a pod's spec, with its fields and their types; of a field without members an empty one."""
    found: dict[str, dict[str, str]] = {}
    waiting = ["PodSpec", "ObjectMeta"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        model: Any = getattr(kubernetes.client, f"V1{name}", None) or getattr(kubernetes.client, f"CoreV1{name}")
        types = {model.attribute_map[field]: _MODEL.search(kind) for field, kind in model.openapi_types.items()}
        found[name] = {field: kind[1] if kind else "" for field, kind in types.items()}
        waiting += filter(None, found[name].values())
    return found


def text(types: dict[str, dict[str, str]]) -> str:
    lines = [
        fill(
            f"{name}: " + " ".join(f"{field}={kind}" if kind else field for field, kind in sorted(fields.items())),
            width=120,
            subsequent_indent="  ",
            break_long_words=False,
        )
        for name, fields in sorted(types.items())
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for file in FILES:
        file.write_text(text(of_client()))
