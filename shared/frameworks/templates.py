"""Checks pod templates, which every framework has, and notes the fields of theirs that have no effect.  Pure.

A check is about what rendering needs, and what would make a pod fail for ever; the API server checks the rest, and
refuses a field that it does not know.  What becomes of each field stands in `docs/pods.md`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from posixpath import normpath
from types import MappingProxyType
from typing import NamedTuple

from shared.cluster.pod_fields import meant_of, types
from shared.frameworks.reading import DNS_LABEL, NAME_OF_VARIABLE, Fields
from shared.job.naming import SSH_FOLDER

_NAMES = "the pods of a job find each other by the names of pods"

NAMED_BY_MUSTER = ("hostname", "hostnameOverride", "setHostnameAsFQDN")
"""The fields of a pod that Muster sets: their values in a template have no effect."""

READ_ONLY = ("configMap", "secret", "projected", "downwardAPI", "image")
"""The sources of volumes that no container may write to."""


class Promises(NamedTuple):
    """What Muster puts into the pods of a role, besides what it puts into all."""

    subdomain: bool = False
    """True if the pods share a Service, whose name is their subdomain."""
    restarts: str = ""
    """The role's restartPolicy; empty if it is the template's."""
    folders: tuple[str, ...] = ()
    """Where the training container has hosts files."""
    spare: tuple[str, ...] = ()
    """Where it has copies of them for some programs."""
    ssh: str = ""
    """Where it has ssh keys."""
    volumes: tuple[str, ...] = ()
    """The names of the volumes for them."""
    labels: Mapping[str, str] = MappingProxyType({})
    """Those of the first pod."""


NOTHING = Promises()


def check(template: Fields, training: Fields, promises: Promises) -> None:
    """Refuse what would break a promise of the kind, and note the fields without effect."""
    spec = template.part("spec")
    _only(template, ("metadata", "spec", "apiVersion", "kind"), meant_in=("metadata", "spec"))
    _only(template.part("metadata"), types()["ObjectMeta"])
    for name in NAMED_BY_MUSTER:
        if spec.raw(name) not in (None, "", False):
            spec.ignore(name, f"{_NAMES}, which are their host names")
    if spec.raw("dnsPolicy") == "Default":
        becomes = "Default becomes ClusterFirst, and with hostNetwork ClusterFirstWithHostNet"
        spec.ignore("dnsPolicy", f"{_NAMES}: {becomes}")
    if promises.subdomain and spec.raw("subdomain") not in (None, ""):
        spec.ignore("subdomain", f"{_NAMES} in the job's own Service")
    if promises.restarts and spec.raw("restartPolicy") not in (None, "", "Never", promises.restarts):
        spec.ignore("restartPolicy", "Muster makes failed pods again: write it beside the template")
    note_labels(template, promises.labels)
    if promises.folders and promises.ssh == SSH_FOLDER:
        _note_group(spec, training)
    for volume in spec.parts("volumes"):
        if volume.raw("name") in [*promises.volumes]:
            volume.refuse("ReservedName", "give the volume another name: Muster adds one of this name", "name")
    _check_mounts(spec, training, promises)


def _note_group(spec: Fields, training: Fields) -> None:
    """Note an fsGroup of a launcher that runs as root: the kubelet has the group read every file of a volume."""
    users = (part.part("securityContext").raw("runAsUser") for part in (training, spec))
    if spec.part("securityContext").has("fsGroup") and not next((user for user in users if user is not None), 0):
        message = "ssh as root refuses such a key: leave it to the workers, or set runAsUser to another user"
        spec.part("securityContext").ignore("fsGroup", message, "lets a group read the launcher's private key")


def note_labels(template: Fields, labels: Mapping[str, str]) -> None:
    """Note those of Muster's labels of which the template has another value."""
    metadata = template.part("metadata")
    for name, value in labels.items():
        if metadata.part("labels").raw(name) not in (None, value):
            metadata.ignore(f"labels[{name}]", "the label is Muster's")


def _only(part: Fields, known: Collection[str], *, meant_in: Collection[str] | None = None) -> None:
    for name in part.members:
        if name not in known:
            likely = meant_of(name, known if meant_in is None else meant_in)
            part.refuse("UnknownField", f"write {likely}" if likely else "leave it out: no pod has such a field", name)


def _check_mounts(spec: Fields, training: Fields, promises: Promises) -> None:
    fixed = {volume.raw("name") for volume in spec.parts("volumes") if any(volume.has(source) for source in READ_ONLY)}
    secrets = {volume.raw("name") for volume in spec.parts("volumes") if volume.has("secret")}
    ours = [*promises.folders, *promises.spare, *filter(None, (promises.ssh,))]
    for mount in training.parts("volumeMounts"):
        path = absolute(mount.raw("mountPath"))
        if not path:
            continue
        volume = mount.raw("name")
        hidden = next((folder for folder in ours if f"{path}/".startswith(f"{folder}/")), "")
        held = next((folder for folder in ours if folder.startswith(f"{path.rstrip('/')}/")), "")
        if hidden in promises.folders:
            mount.refuse("InvalidPath", f"mount it elsewhere: {hidden} has the hosts files", "mountPath")
        elif hidden in promises.spare:
            mount.ignore("mountPath", "they are in the other folders, too", f"hides the hosts files in {hidden}")
        elif hidden and path == hidden and volume not in secrets:
            mount.ignore("mountPath", "the pod needs keys of its own there", f"hides Muster's ssh keys in {hidden}")
        elif held and (volume in fixed or mount.raw("readOnly") is True):
            message = f"mount it elsewhere: {held} cannot be mounted in a folder that is read-only"
            mount.refuse("InvalidPath", message, "mountPath")


def absolute(path: object) -> str:
    """The path as the kubelet takes it, without a slash at the end; empty for what is no path."""
    return normpath(f"/{path.lstrip('/')}") if isinstance(path, str) and path else ""


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


def check_variables(variables: Iterable[Fields], reserved: Collection[str] = ()) -> None:
    """Refuse a variable without a name, of which no pod can be made, and one whose name is reserved."""
    for variable in variables:
        if not variable.text("name"):
            variable.refuse("InvalidEnvironment", NAME_OF_VARIABLE, "name")
        elif variable.raw("name") in reserved:
            message = "leave it out: every pod gets its own value, by which the pods find each other"
            variable.refuse("ReservedVariable", message, "name")


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
