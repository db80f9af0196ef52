"""The rendezvous of an elastic group of torchrun: a pod of the job's own, which serves the store of its agents.  Pure.

With the backend c10d torchrun serves the store in the pod that the endpoint names.  Upstream names the first worker,
with which the store and the group are lost.  A pod that only serves the store outlives every worker.

The pod is a role beside the user's: it is counted as no worker, and in no status.  It runs the image of the workers
where their template lets it run, and takes nothing else of the template that costs something or could keep it waiting.
"""

import re
from typing import Any

from shared.frameworks.framework import PodContext, PodRenderer
from shared.frameworks.pods import pod_of
from shared.frameworks.schemas import Document
from shared.job.naming import ATTEMPT, JOB_UID, JobKey
from shared.job.spec import RENDEZVOUS, RoleSpec
from shared.untrusted import at, objects

STEM = "-rdzv-"
"""Shorter than a worker's, so that every job with a name for its workers has one for its rendezvous."""

RESOURCES: Document = {
    "requests": {"cpu": "50m", "memory": "384Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
"""PyTorch alone, when it is loaded, takes 300 MB, and 240 MB of its files."""

GRACE_SECONDS = 5

C10D = "c10d"
"""The backend of torchrun whose store this is."""

UNSHARED = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Has the processes of each round make a store of their own.

Since 2.4 torchrun writes the address of one store for all rounds, once: a worker that joins later waits for it in vain.
"""

_ID_VARIABLE = "PET_RDZV_ID"

NO_ID = "none"
"""What torchrun calls a group without an id of its own."""

# An agent whose training failed closes its group for ever, also to the pods that are made again: in the first worker
# the store would be new then.  While an agent is there its heartbeats change the state, and 15 s are torchrun's limit.
_PROGRAM = """\
import pickle, signal, sys, time
from torch.distributed import TCPStore
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
store = TCPStore("localhost", int(sys.argv[1]), is_master=True, wait_for_workers=False)
print("the rendezvous of torchrun listens on port", sys.argv[1])
try:
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    group, before, since = C10dRendezvousBackend(store, sys.argv[2]), None, 0.0
    while True:
        time.sleep(1)
        found = group.get_state()
        if found != before:
            before, since = found, time.monotonic()
        elif found and time.monotonic() - since > 15:
            state = pickle.loads(found[0])
            if state.closed:
                state.closed = False
                group.set_state(pickle.dumps(state), found[1])
                print("every agent of a group that failed is gone: the next ones may meet again")
except Exception as error:
    print("a group that fails stays closed:", repr(error))
while True:
    signal.pause()
"""

# The arguments are the program, its port, the id of the group, and the Pythons to try first.  Without torch in the
# image no torchrun asks for the store, and the pod waits for the end of the job.
_SCRIPT = """\
program=$1 port=$2 group=$3
shift 3
for python in "$@" python3 python /opt/*/bin/python3 /opt/conda/envs/*/bin/python3 /venv/bin/python3 .venv/bin/python3
do
  if "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null; then
    exec "$python" -u -c "$program" "$port" "$group"
  fi
done
echo "no Python with torch was found in the image, so no store is served; torchrun needs rdzvHost and rdzvPort then" >&2
trap "exit 143" TERM
while true; do
  sleep 3600 &
  wait $!
done
"""

_PROGRAMS = re.compile(r"""([^\s"'=;&|()]*/bin/)(?:activate|torchrun|accelerate|python[0-9.]*)\b""")
"""The folder of a program in a command, from which its Python comes."""

_OPTIONS = re.compile(
    r"""(?<!\S)["']?--(rdzv[-_]endpoint|main[-_]process[-_]ip|rdzv[-_]backend|standalone)(?![\w-])[=\s]*["']?([^\s"']*)"""
)
"""Options of torchrun and accelerate that win over the variables, with their values.

An address without another backend (`--master-addr`) is none of them: torchrun does not heed it then.
"""

_ID = re.compile(r"""(?<!\S)["']?--rdzv[-_]id[=\s]+["']?([^\s"']+)""")

_REFERENCE = re.compile(r"\$[{(]?(\w+)[)}]?")
"""A shell's or the kubelet's reference to a variable."""

_OF_POD = (
    *("nodeSelector", "tolerations", "runtimeClassName", "schedulerName", "priorityClassName", "preemptionPolicy"),
    *("imagePullSecrets", "serviceAccountName", "securityContext", "hostUsers", "os"),
)
_OF_CONTAINER = ("name", "image", "imagePullPolicy", "envFrom", "workingDir", "volumeMounts", "securityContext")
"""The fields of the template that the pod keeps."""

_WITHOUT_GPU = {"NVIDIA_VISIBLE_DEVICES": "void", "NVIDIA_DRIVER_CAPABILITIES": ""}

_OF_GANG = re.compile(r"(scheduling|pod-group|kueue|volcano)[\w.-]*(/|$)|.*/(pod-)?group-name$")
"""Labels and annotations by which it would be counted as a member of a gang, or as a pod in a queue."""


def rendezvous_name(key: JobKey) -> str:
    return f"{key.name}{STEM}0"


def rendezvous_role(job: str, container: str) -> RoleSpec:
    """The role of the rendezvous, whose pod always comes back."""
    return RoleSpec(
        name=RENDEZVOUS,
        replicas=1,
        min_replicas=0,
        restart_policy="Always",
        container=container,
        stem=f"{job}{STEM}",
    )


def brings_its_own(template: Any, container: str) -> bool:
    """True if the training container tells torchrun of another rendezvous; for any JSON."""
    found = _container(template, container)
    said = [(str(variable.get("name")), str(variable.get("value", ""))) for variable in objects(found.get("env"))]
    said += [(match[1], match[2]) for match in _OPTIONS.finditer(" ".join(_words(found)))]
    return any(_is_another(name.removeprefix("PET_").lower().replace("-", "_"), value) for name, value in said)


def rendezvous_pod(
    framework: PodRenderer,
    template: Document,
    context: PodContext,
    *,
    container: str,
    port: int,
    search: bool,
    group: str = "",
) -> Document:
    """Render the pod from the template of the workers, whose training container has that name.

    `group` is the id of their group in the job; the container's own wins.
    """
    theirs = _container(template, container)
    spec = template["spec"]
    kept = {name: spec[name] for name in _OF_POD if spec.get(name) is not None}
    affinity = spec.get("affinity") or {}
    if nodes := affinity.get("nodeAffinity"):
        kept["affinity"] = {"nodeAffinity": nodes}
    volumes = [_cheap(volume) for volume in objects(spec.get("volumes"))]
    made = {name: theirs[name] for name in _OF_CONTAINER if theirs.get(name) is not None}
    made |= {
        "command": [
            "sh",
            "-c",
            _SCRIPT,
            RENDEZVOUS,
            _PROGRAM,
            str(port),
            _id(theirs, group) or NO_ID,
            *_pythons(theirs),
        ],
        "env": [*_environment(theirs), *({"name": name, "value": value} for name, value in _WITHOUT_GPU.items())],
        "resources": RESOURCES,
        "ports": [{"name": RENDEZVOUS, "containerPort": port}],
    }
    meta = template.get("metadata") or {}
    # A rule of the workers about other pods selects by labels, and is not about this pod.
    choosy = affinity.get("podAntiAffinity") or spec.get("topologySpreadConstraints")
    labels = {} if choosy else _outside_of_gangs(meta.get("labels"))
    own = {
        "metadata": {"labels": labels, "annotations": _outside_of_gangs(meta.get("annotations"))},
        "spec": kept
        | {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [made],
        }
        | ({"volumes": volumes} if volumes else {}),
    }
    pod = pod_of(framework, own, context, search=search)
    # The kind's other labels are of its replicas: scripts and the SDK select those by them.
    slot = (JOB_UID, ATTEMPT, framework.role_label, framework.index_label)
    pod["metadata"]["labels"] = labels | {name: pod["metadata"]["labels"][name] for name in slot}
    return pod


def _is_another(option: str, value: str) -> bool:
    if option == "rdzv_backend":
        return value != C10D and "PET_RDZV_BACKEND" not in value
    return option in {"standalone", "main_process_ip"} or (
        option == "rdzv_endpoint" and "PET_RDZV_ENDPOINT" not in value
    )


def _container(template: Any, name: str) -> Document:
    return next((known for known in objects(at(template, "spec", "containers")) if known.get("name") == name), {})


def _words(container: Document) -> list[str]:
    parts = (container.get(part) for part in ("command", "args"))
    return [word for words in parts if isinstance(words, list) for word in words if isinstance(word, str)]


def names_group(template: Any, container: str) -> bool:
    """True if the training container gives its group an id, which may be known in its pods alone; for any JSON."""
    found = _container(template, container)
    variables = (each for each in objects(found.get("env")) if each.get("name") == _ID_VARIABLE)
    return _option_of(found) != "" or any(each.get("value") or each.get("valueFrom") for each in variables)


def _option_of(container: Document) -> str:
    found = _ID.search(" ".join(_words(container)))
    return found[1] if found is not None else ""


def _id(container: Document, group: str) -> str:
    """The id that a training container gives its group, by its command or a variable; otherwise `group`.

    This pod has the container's variables: its kubelet replaces what refers to them, which a worker's shell may do.
    """
    found = next((each for each in objects(container.get("env")) if each.get("name") == _ID_VARIABLE), {})
    own = f"$({_ID_VARIABLE})" if found.get("valueFrom") else str(found.get("value") or group)
    said = _REFERENCE.sub(lambda each: own if each[1] == _ID_VARIABLE else f"$({each[1]})", _option_of(container))
    return said or own


def _pythons(container: Document) -> list[str]:
    """The Pythons beside the programs of the command, each once."""
    return [*dict.fromkeys(f"{match[1]}python3" for word in _words(container) for match in _PROGRAMS.finditer(word))]


def _environment(container: Document) -> list[Document]:
    """The container's variables that do not depend on its resources."""
    return [
        variable
        for variable in objects(container.get("env"))
        if variable.get("name") not in _WITHOUT_GPU
        and not (isinstance(source := variable.get("valueFrom"), dict) and "resourceFieldRef" in source)
    ]


def _cheap(volume: Document) -> Document:
    """The volume; in the place of a claim that every pod gets for itself an empty folder."""
    return {"name": volume.get("name"), "emptyDir": {}} if "ephemeral" in volume else volume


def _outside_of_gangs(marks: Any) -> dict[str, str]:
    return {name: value for name, value in (marks or {}).items() if not _OF_GANG.match(name)}
