"""What each pod of a role requests, as the kube-scheduler counts it, from the pod that Muster would make.  Pure.

What a LimitRange or a webhook adds in the cluster is not in it.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.framework import Framework, PodContext, key_of
from shared.job.naming import Slot, WorkerName
from shared.job.spec import JobSpec
from shared.untrusted import at, objects

MOST_RESOURCES = 8
"""The most resources of a role that are kept: processors, memory, and devices by the names of their vendors."""

_LONGEST_NAME = 100
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?")
_SCALES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("", 1000.0), ("i", 1024.0))
    for power, prefix in enumerate("KMGTPE", 1)
    if prefix != "K" or suffix
}
"""By suffix (Kubernetes API, of quantities)."""


def amount(quantity: Any) -> float:
    """The number that a quantity stands for: `500m` is 0.5; 0 for another shape."""
    text = str(quantity) if isinstance(quantity, int | float | str) and not isinstance(quantity, bool) else ""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return 0.0
    number, suffix, exponent = found.groups()
    return float(number) * _SCALES.get(suffix, 1.0) * 10.0 ** int(exponent or 0)


def with_requests(framework: Framework, manifest: Custom, spec: JobSpec) -> JobSpec:
    """The spec of which each role has the requests of its first pod; none where that cannot be rendered."""
    sizes = {role.name: role.replicas for role in spec.roles}
    key, roles = key_of(manifest), []
    for role in spec.roles:
        slot = Slot(0, role.name, 0)
        context = PodContext(key=key, slot=slot, name=WorkerName(f"{role.stem or key.name}0"), sizes=sizes)
        try:
            pod = framework.pod(manifest, spec, context)
        except Refused:
            return spec
        roles.append(msgspec.structs.replace(role, requests=tuple(requests(pod.get("spec")).items())))
    return msgspec.structs.replace(spec, roles=tuple(roles))


def requests(pod: Any) -> dict[str, float]:
    """What a pod requests, by resource: processors in cores, memory in bytes.

    Its containers run together, and with them the init containers that stay; every other init container runs alone, and
    what it needs beyond them counts too.  Absent requests are the limits (Kubernetes docs, resource management).
    """
    together, most = defaultdict[str, float](float), defaultdict[str, float](float)
    for container in objects(at(pod, "initContainers")):
        stays = container.get("restartPolicy") == "Always"
        for name, found in _of_container(container).items():
            most[name] = max(most[name], together[name] + found)
            together[name] += found if stays else 0.0
    for container in objects(at(pod, "containers")):
        for name, found in _of_container(container).items():
            together[name] += found
    asked = {name: max(together[name], most[name]) for name in sorted({**together, **most})}
    kept = [name for name, value in asked.items() if value and len(name) <= _LONGEST_NAME]
    return {name: asked[name] for name in kept[:MOST_RESOURCES]}


def _of_container(container: Mapping[str, Any]) -> dict[str, float]:
    limits, asked = (at(container, "resources", kind) for kind in ("limits", "requests"))
    return {
        str(name): amount(value) for each in (limits, asked) if isinstance(each, dict) for name, value in each.items()
    }
