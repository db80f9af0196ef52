"""Checks pod templates, which every framework has.  Pure.

It checks what rendering needs, and what would make a pod fail for ever; the API server checks the rest.
"""

import re
from typing import Any

from shared.frameworks.pod_rules import NOTHING, Promises, check
from shared.frameworks.reading import Fields
from shared.job.naming import CONTAINER

DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LONGEST_CONTAINER_NAME = 63

GPU = "nvidia.com/gpu"

_LABEL = re.compile(DNS_LABEL)
_COUNT = re.compile(r"[0-9]{1,9}")


def training_container(role: Fields, name: str = "", said: str = "", promises: Promises = NOTHING) -> Fields | None:
    """Check the `template` of a role; return its training container, if there is one.

    It is the container of that `name`, or without a name the first.  If a user chose the name, `said` is where.
    """
    if not role.has("template"):
        role.refuse("NoTemplate", "add a pod template with at least one container", "template")
        return None
    template = role.part("template")
    metadata = template.part("metadata")
    metadata.text_map("labels")
    metadata.text_map("annotations")
    spec = template.part("spec")
    spec.parts("volumes")
    spec.part("dnsConfig").texts("searches")
    spec.part("securityContext")
    containers = spec.parts("containers")
    if not containers:
        which = f"the one called {said or name}" if name else "the first one"
        spec.refuse("NoContainers", f"add at least one container; {which} trains", "containers")
        return None
    names: set[str] = set()
    for container in containers:
        _check_container(container, names)
    training = next((known for known in containers if name in ("", known.raw("name"))), None)
    if training is None:
        spec.refuse("NoTrainingContainer", f"call the container that trains {said or name}", "containers")
        return None
    check(template, training, promises)
    return training


def with_token_if_asked(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod without a service account's token, unless its template asks for one or names the account."""
    asks = ("automountServiceAccountToken", "serviceAccountName", "serviceAccount")
    if any(pod["spec"].get(name) not in (None, "") for name in asks):
        return pod
    return pod | {"spec": pod["spec"] | {"automountServiceAccountToken": False}}


def with_last_words(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with `FallbackToLogsOnError` in every container whose template has no terminationMessagePolicy.

    The kubelet uses the log only if the container's own message file is empty.
    """
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    kinds = {
        kind: [policy | each if isinstance(each, dict) else each for each in pod["spec"][kind]]
        for kind in ("initContainers", "containers")
        if isinstance(pod["spec"].get(kind), list)
    }
    return pod | {"spec": pod["spec"] | kinds}


def with_training_container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    """The pod with the name of its training container, for the watcher: admission may put others before it."""
    meta = pod["metadata"]
    annotations = (meta.get("annotations") or {}) | {CONTAINER: name}
    return pod | {"metadata": meta | {"annotations": annotations}}


def gpus(container: Fields, *, most: int) -> int | None:
    """The container's limit of GPUs; None if it has none."""
    limits = container.part("resources").part("limits")
    if not limits.has(GPU):
        return None
    value = limits.raw(GPU)
    if isinstance(value, str) and _COUNT.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    limits.refuse("InvalidValue", f"write a whole number of GPUs up to {most} here, or set spec.slotsPerWorker", GPU)
    return None


def _check_container(container: Fields, names: set[str]) -> None:
    container.parts("volumeMounts")
    name = container.text("name")
    if not name:
        container.refuse("NoContainerName", "give the container a name", "name")
    else:
        if len(name) > LONGEST_CONTAINER_NAME or not _LABEL.fullmatch(name):
            message = f"use at most {LONGEST_CONTAINER_NAME} lower-case letters, digits and inner hyphens"
            container.refuse("InvalidContainerName", message, "name")
        elif name in names:
            container.refuse("InvalidContainerName", "give each container of the pod a name of its own", "name")
        names.add(name)
    if not container.text("image"):
        container.refuse("NoImage", "say which image the container runs", "image")
