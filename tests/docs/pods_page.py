"""The page of all fields of a pod template, with the tables that it is made from.

`shared/frameworks/templates.py` checks templates, `pods.py` beside it renders pods.  Pure, but for `make pages`, which
writes `docs/pods.md`.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

Treatment = Literal["passed on", "set where absent", "added to", "overridden", "refused"]


class Rule(NamedTuple):
    """What becomes of a field."""

    treatment: Treatment = "passed on"
    note: str = ""


PASSED = Rule()


def _passed(names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), PASSED)


_NAMES = "the pods of a job find each other by the names of pods"
_BY_SERVER = "The API server takes it in no new pod."

POD: Mapping[str, Rule] = MappingProxyType(
    _passed(
        "enableServiceLinks evictionResponders hostAliases hostIPC hostPID hostUsers imagePullSecrets nodeName os "
        "overhead preemptionPolicy priorityClassName resourceClaims runtimeClassName schedulerName "
        "schedulingGates schedulingGroup serviceAccount serviceAccountName shareProcessNamespace "
        "terminationGracePeriodSeconds topologySpreadConstraints"
    )
    | {
        "activeDeadlineSeconds": Rule(note="The pod then fails."),
        "affinity": Rule("added to", "A node where three pods of the job failed is the last choice for ten minutes."),
        "automountServiceAccountToken": Rule("set where absent", "False, unless the template names an account."),
        "containers": Rule("added to", "See below."),
        "dnsConfig": Rule("added to", "The job's search domain comes first."),
        "dnsPolicy": Rule(
            "overridden",
            f"{_NAMES}: Default becomes ClusterFirst, and with hostNetwork ClusterFirstWithHostNet",
        ),
        "ephemeralContainers": Rule("refused", _BY_SERVER),
        "hostNetwork": Rule(note="An sshd of the pod then needs a port that is free on the node."),
        "hostname": Rule("overridden", f"{_NAMES}, which are their host names"),
        "hostnameOverride": Rule("overridden", f"{_NAMES}, which are their host names"),
        "initContainers": Rule(note="What fails or waits there is told by name."),
        "nodeSelector": Rule(note="With Kueue, together with the flavour's."),
        "priority": Rule(note="The API server takes the priorityClassName's alone."),
        "readinessGates": Rule(note="A pod is Ready once they are, too."),
        "resources": Rule(note="Of the whole pod."),
        "restartPolicy": Rule("overridden", "Muster makes failed pods again: write it beside the template"),
        "securityContext": Rule(
            note="With an fsGroup the workers' sshd keeps its own host keys, and root's ssh refuses a launcher's."
        ),
        "setHostnameAsFQDN": Rule("overridden", f"{_NAMES}, which are their host names"),
        "subdomain": Rule(
            "overridden", "Where the pods share a Service it is that Service's name; passed on elsewhere."
        ),
        "tolerations": Rule(note="With Kueue, together with the flavour's."),
        "volumes": Rule("added to", "A volume with the name of one of Muster's is refused."),
    }
)
"""The fields of a PodSpec."""

CONTAINER: Mapping[str, Rule] = MappingProxyType(
    _passed(
        "args envFrom image imagePullPolicy lifecycle livenessProbe name resizePolicy securityContext "
        "startupProbe stdin stdinOnce terminationMessagePath tty volumeDevices workingDir"
    )
    | {
        "command": Rule("set where absent", "Of workers that wait for ssh, without args: it starts sshd."),
        "env": Rule("added to", "A variable by which the pods find each other is refused; of others the user's wins."),
        "ports": Rule("added to", "The kind's own port, unless the training container has one of its name or number."),
        "readinessProbe": Rule(note="That of the training container counts."),
        "resources": Rule(note="`alpha.kubernetes.io/nvidia-gpu` becomes `nvidia.com/gpu`."),
        "restartPolicy": Rule("set where absent", "Never, with `muster.dev/restart-in-place`."),
        "restartPolicyRules": Rule("set where absent", "Begin a failure again; with the same annotation."),
        "terminationMessagePolicy": Rule("set where absent", "FallbackToLogsOnError."),
        "volumeMounts": Rule("added to", "A mount that would hide the hosts files is refused; see below."),
    }
)
"""The fields of a Container."""

METADATA: Mapping[str, Rule] = MappingProxyType(
    {
        "annotations": Rule(
            "added to", "Muster's own win: the version of the hosts files, the index of a TrainJob's node."
        ),
        "labels": Rule(
            "added to",
            "Muster's own labels win, those of the job and those by which its kind selects pods, and a job whose "
            "template has other values says so.",
        ),
    }
)
"""The fields of a template's metadata; the others of an ObjectMeta are Muster's or the API server's."""

PAGE = """\
# Pod templates

What becomes of each field, in every kind. `make pages` writes this page.

- *overridden*: Muster's value holds; if yours differs, an Event (`FieldIgnored`) and the condition `Created` say so.
- *refused*: the job does not start; its condition `Created` has the path.

A field that the API server does not know (`nodeSelecter:`) ends the job with `UnknownField` and the path.

## The pod

{pod}

## Each container

`initContainers` and `ephemeralContainers` have the same fields; what Muster adds is in the container that trains.

{container}

## The metadata

{metadata}

## Mounts

A volume of yours at these paths of the training container:

- `/etc/edl`, `/etc/mpi` (launcher of a TrainingJob, MPIJob, TrainJob with MPI), or in them: refused (`InvalidPath`)
- `/job` (launcher of a TrainingJob): stays, and the job says that it hides a copy of the hosts files
- `/root/.ssh`, or `sshAuthMountPath` (pods with ssh): stays; if it is no Secret, the job says that it hides the keys
- `/etc/ssh` (workers with ssh): stays: your host keys, which the launcher does not check
- a folder around one of these, such as `/etc`: stays if it can be written to; refused if it is read-only

Other containers of the pod may mount anything anywhere.
A volume with a name of Muster's (`muster-ssh`, `muster-hosts-edl`, `muster-hosts-job`, `muster-hosts-mpi`,
`mpi-hostfile`) is refused in the roles that get it (`ReservedName`).
"""


def page() -> str:
    """`docs/pods.md`."""
    parts = {"pod": POD, "container": CONTAINER, "metadata": METADATA}
    return PAGE.format(**{name: "\n".join(_lines(rules)) for name, rules in parts.items()})


def _lines(rules: Mapping[str, Rule]) -> Iterator[str]:
    plain = [f"`{name}`" for name, rule in sorted(rules.items()) if rule == PASSED]
    if plain:
        yield f"Passed on: {', '.join(plain)}.\n"
    others: dict[Rule, list[str]] = {}
    for name, rule in sorted(rules.items()):
        if rule != PASSED:
            others.setdefault(rule, []).append(f"`{name}`")
    for rule, names in others.items():
        yield f"- {', '.join(names)} {rule.treatment}{': ' if rule.note else ''}{rule.note.removesuffix('.')}"


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "pods.md").write_text(page())


if __name__ == "__main__":
    main()
