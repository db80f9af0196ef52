"""Pods: their defaults, the fields that an update may change, quantities, and what the binder and nodes rely on.

`pod_fields.txt` has the names of the fields of a pod's spec in the newest Kubernetes, a type on each line.
"""

import copy
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from devcluster.apiserver import errors
from devcluster.apiserver.errors import Cause, Json
from devcluster.apiserver.metadata import label_1123
from devcluster.clock import now

FIELDS = Path(__file__).with_name("pod_fields.txt")

STATUS_LISTS = ("initContainerStatuses", "containerStatuses")
CONTAINER_LISTS = ("initContainers", "containers")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)

SPEC_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
}
GATED: Json = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
NODE_TROUBLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
DEFAULT_TOLERATION_SECONDS = 300
"""Seconds that a pod without such tolerations stays on a node that is not ready or unreachable."""


def drop_unknown(pod: Json) -> list[str]:
    """Drop the fields of a pod's spec that Kubernetes does not have, in place; return their paths."""
    return [*_drop(pod.get("spec"), "PodSpec", "spec")]


def _drop(value: Any, kind: str, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _drop(item, kind, f"{path}[{index}]")
    elif isinstance(value, dict):
        known = field_types()[kind]
        for name in [*value]:
            where = f"{path}.{name}"
            if name not in known:
                del value[name]
                yield where
            elif known[name] and value[name] is not None:
                yield from _drop(value[name], known[name], where)


@lru_cache(maxsize=1)
def field_types() -> dict[str, dict[str, str]]:
    """Type → field → the type of the field, or of its items; empty for a field without members."""
    lines = FIELDS.read_text().replace("\n  ", " ").splitlines()
    types = (line.partition(": ") for line in lines)
    return {
        name: {field: kind for field, _, kind in (each.partition("=") for each in fields.split())}
        for name, _, fields in types
    }


def fill(pod: Json, old: Json | None) -> None:
    spec = pod.get("spec")
    if not spec:
        return
    for name, value in SPEC_DEFAULTS.items():
        if spec.get(name) is None:
            spec[name] = copy.copy(value)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in containers(spec):
        _fill_container(container)
    for volume in spec.get("volumes") or ():
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 0o644)
    tolerated = {one.get("key") for one in spec.get("tolerations") or ()}
    missing = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_SECONDS}
        for key in NODE_TROUBLE
        if key not in tolerated and None not in tolerated
    ]
    if missing:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *missing]
    if old is None:
        pod["status"] = {"phase": "Pending", "qosClass": _quality_of_service(spec)}
        if spec.get("schedulingGates"):
            pod["status"]["conditions"] = [GATED | {"lastTransitionTime": now()}]
    for condition in (pod.get("status") or {}).get("conditions") or ():
        for moment in ("lastProbeTime", "lastTransitionTime"):
            condition.setdefault(moment, None)
    for field in STATUS_LISTS:
        for one in (pod.get("status") or {}).get(field) or ():
            for state in ("state", "lastState"):
                one.setdefault(state, {})


def _fill_container(container: Json) -> None:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition(":")[2]
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent")
    resources = container["resources"] = container.get("resources") or {}
    if resources.get("limits"):
        resources["requests"] = resources["limits"] | (resources.get("requests") or {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def _quality_of_service(spec: Json) -> str:
    asked = [container.get("resources") or {} for container in containers(spec)]
    if not any(one.get("requests") or one.get("limits") for one in asked):
        return "BestEffort"
    whole = {"cpu", "memory"}
    if all(whole <= set(one.get("limits") or ()) and one.get("requests") == one.get("limits") for one in asked):
        return "Guaranteed"
    return "Burstable"


def containers(spec: Json) -> Iterator[Json]:
    for field in CONTAINER_LISTS:
        yield from spec.get(field) or ()


def wrong(pod: Json, old: Json | None) -> list[Cause]:
    spec = pod.get("spec") or {}
    causes = [errors.required("spec.containers")] if not spec.get("containers") else []
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for index, volume in enumerate(spec.get("volumes") or ()):
        # The node uses the name as that of a folder.
        if problem := label_1123(volume.get("name") or ""):
            causes.append(errors.invalid_value(f"spec.volumes[{index}].name", volume.get("name"), problem))
    seen: set[str] = set()
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            causes += _wrong_container(container, f"spec.{field}[{index}]", volumes, seen)
    if spec.get("restartPolicy", "Always") not in RESTART_POLICIES:
        causes.append(errors.not_supported("spec.restartPolicy", spec["restartPolicy"], RESTART_POLICIES))
    for field in ("hostname", "subdomain"):
        if spec.get(field) and (problem := label_1123(spec[field])):
            causes.append(errors.invalid_value(f"spec.{field}", spec[field], problem))
    if old is None:
        return causes
    for field in reversed(CONTAINER_LISTS):
        if len(spec.get(field) or ()) != len(old["spec"].get(field) or ()):
            return [*causes, errors.forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")]
    return causes if _fixed(spec) == _fixed(old["spec"]) else [*causes, errors.forbidden_field("spec", FIXED)]


def _wrong_container(container: Json, path: str, volumes: set[Any], seen: set[str]) -> list[Cause]:
    causes = []
    name = container.get("name") or ""
    if not name:
        causes.append(errors.required(f"{path}.name"))
    elif problem := label_1123(name):
        causes.append(errors.invalid_value(f"{path}.name", name, problem))
    elif name in seen:
        causes.append(errors.duplicate(f"{path}.name", name))
    seen.add(name)
    if not (container.get("image") or "").strip():
        causes.append(errors.required(f"{path}.image"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}.volumeMounts[{index}]"
        if mount.get("name") not in volumes:
            causes.append(Cause(f"{where}.name", "FieldValueNotFound", f"Not found: {errors.shown(mount.get('name'))}"))
        if not mount.get("mountPath"):
            causes.append(errors.required(f"{where}.mountPath"))
    for amounts in ("limits", "requests"):
        for resource, text in (container["resources"].get(amounts) or {}).items():
            try:
                parse_quantity(text)
            except ValueError as error:
                causes.append(errors.invalid_value(f"{path}.resources.{amounts}[{resource}]", text, str(error)))
    return causes


def _fixed(spec: Json) -> Json:
    """The part of a spec that an update may not change."""
    fixed = {name: value for name, value in spec.items() if name not in MUTABLE and value is not None}
    for field in CONTAINER_LISTS:
        if fixed.get(field):
            fixed[field] = [
                {name: value for name, value in container.items() if name != "image"} for container in fixed[field]
            ]
    return fixed


QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d{1,3}|[KMGTPE]i|[numkMGTPE])?")
QUANTITY_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def parse_quantity(text: str | float) -> Decimal:
    """The value of a quantity.  Raises `ValueError` with the rule."""
    match = QUANTITY.fullmatch(str(text))
    if not match:
        raise ValueError(QUANTITY_RULE)
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix[:1] in "eE" and len(suffix) > 1:
        return number.scaleb(int(suffix[1:]))
    return number * QUANTITY_SUFFIXES.get(suffix, Decimal(1))
