"""Pods: defaults, validation and what an update may change."""

import copy
import re
from collections.abc import Iterator
from typing import Any

from devcluster.apiserver.clock import now
from devcluster.apiserver.errors import (
    Cause,
    Json,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    shown,
)
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.names import label_1123
from devcluster.apiserver.quantity import parse_quantity
from devcluster.apiserver.shapes import Pod

STATUS_LISTS = ("initContainerStatuses", "containerStatuses")
CONTAINER_LISTS = ("initContainers", "containers")
MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
ENVIRONMENT_NAME = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
ENVIRONMENT_NAME_RULE = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
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
PATIENCE_WITH_NODES = 300
"""Seconds that a pod stays on a node that is in trouble, when it does not say."""


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
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": PATIENCE_WITH_NODES}
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
    causes = _wrong_spec(spec)
    if old is not None:
        return causes + _wrong_update(spec, old["spec"])
    if spec.get("schedulingGates") and spec.get("nodeName"):
        causes.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


def _wrong_spec(spec: Json) -> list[Cause]:
    causes = [required("spec.containers")] if not spec.get("containers") else []
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    seen: set[str] = set()
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            causes += _wrong_container(container, f"spec.{field}[{index}]", volumes, seen)
    causes += _wrong_volumes(spec)
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        causes.append(required("spec.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None"))
    policies = ("Always", "OnFailure", "Never")
    if spec.get("restartPolicy", "Always") not in policies:
        causes.append(not_supported("spec.restartPolicy", spec["restartPolicy"], policies))
    for field in ("hostname", "subdomain"):
        if spec.get(field) and (problem := label_1123(spec[field])):
            causes.append(invalid_value(f"spec.{field}", spec[field], problem))
    return causes


def _wrong_container(container: Json, path: str, volumes: set[Any], seen: set[str]) -> list[Cause]:
    causes = []
    name = container.get("name")
    if not name:
        causes.append(required(f"{path}.name"))
    elif problem := label_1123(name):
        causes.append(invalid_value(f"{path}.name", name, problem))
    elif name in seen:
        causes.append(duplicate(f"{path}.name", name))
    seen.add(name or "")
    if not (container.get("image") or "").strip():
        causes.append(required(f"{path}.image"))
    for index, variable in enumerate(container.get("env") or ()):
        text = variable.get("name")
        if not text:
            causes.append(required(f"{path}.env[{index}].name"))
        elif not ENVIRONMENT_NAME.fullmatch(text):
            causes.append(invalid_value(f"{path}.env[{index}].name", text, ENVIRONMENT_NAME_RULE))
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort")
        if number is None:
            causes.append(required(f"{path}.ports[{index}].containerPort"))
        elif not 1 <= number <= 65535:
            causes.append(
                invalid_value(f"{path}.ports[{index}].containerPort", number, "must be between 1 and 65535, inclusive")
            )
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            causes.append(required(f"{where}.name"))
        elif mount["name"] not in volumes:
            causes.append(Cause(f"{where}.name", "FieldValueNotFound", f"Not found: {shown(mount['name'])}"))
        if not mount.get("mountPath"):
            causes.append(required(f"{where}.mountPath"))
    return causes + _wrong_resources(container.get("resources") or {}, f"{path}.resources")


def _wrong_resources(resources: Json, path: str) -> list[Cause]:
    causes = []
    for list_name in ("limits", "requests"):
        for name, text in (resources.get(list_name) or {}).items():
            where = f"{path}.{list_name}[{name}]"
            try:
                amount = parse_quantity(text)
            except ValueError as error:
                causes.append(invalid_value(where, text, str(error)))
                continue
            limit = (resources.get("limits") or {}).get(name)
            if amount < 0:
                causes.append(invalid_value(where, text, "must be greater than or equal to 0"))
            if list_name == "requests" and limit is not None and _more(amount, limit):
                detail = f"must be less than or equal to {name} limit of {limit}"
                causes.append(invalid_value(f"{path}.requests", text, detail))
    return causes


def _more(amount: Any, limit: Any) -> bool:
    try:
        return bool(amount > parse_quantity(limit))
    except ValueError:
        return False


def _wrong_volumes(spec: Json) -> list[Cause]:
    causes, seen = [], set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        name, where = volume.get("name"), f"spec.volumes[{index}].name"
        if not name:
            causes.append(required(where))
        elif problem := label_1123(name):
            causes.append(invalid_value(where, name, problem))
        elif name in seen:
            causes.append(duplicate(where, name))
        seen.add(name)
    return causes


def warnings(pod: Json) -> list[str]:
    name = pod["metadata"]["name"]
    problem = label_1123(name)
    what = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior"
    return [f"{what}; a DNS label is recommended: [{problem}]"] if problem else []


def _wrong_update(spec: Json, old: Json) -> list[Cause]:
    for field in reversed(CONTAINER_LISTS):
        if len(spec.get(field) or ()) != len(old.get(field) or ()):
            return [forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")]
    gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    causes = [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for index, gate in enumerate(spec.get("schedulingGates") or ())
        if gate.get("name") not in gates
    ]
    return causes if _fixed(spec) == _fixed(old) else [*causes, forbidden_field("spec", FIXED)]


def _fixed(spec: Json) -> Json:
    """The part of a spec that an update may not touch."""
    fixed = {name: value for name, value in spec.items() if name not in MUTABLE and value is not None}
    for field in CONTAINER_LISTS:
        if fixed.get(field):
            fixed[field] = [
                {name: value for name, value in container.items() if name != "image"} for container in fixed[field]
            ]
    return fixed


RULES = Rules(shape=Pod, fill=fill, wrong=wrong, counts_generations=True, warnings=warnings)
