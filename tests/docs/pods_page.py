"""The page of all fields of a pod template, made from the tables of `shared/frameworks/templates.py`.

Pure, but for `make pages`, which writes `docs/pods.md`.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from shared.frameworks.templates import CONTAINER, METADATA, PASSED, POD, Rule

PAGE = """\
# Pod templates

What becomes of each field of a pod template, in every kind. `make pages` writes this page.

- *passed on*: the pod has it.
- *set where absent*, *added to*: Muster's value stands beside yours.
- *overridden*: Muster's value holds; if yours differs, an Event (`FieldIgnored`) and the condition `Created` say so.
- *refused*: the job does not start; its condition `Created` has the path.

A field that Kubernetes does not have (`nodeSelecter:`) ends the job with `UnknownField` and the path. Fields of a newer
Kubernetes are passed on if the API server knows them.

## The pod

{pod}

## Each container

`initContainers` and `ephemeralContainers` have the same fields; what Muster adds is in the container that trains.

{container}

## The metadata

{metadata}

## Mounts

| path | kinds | a volume of yours there |
| --- | --- | --- |
| `/etc/edl`, `/etc/mpi` | launcher of a TrainingJob | refused (`InvalidPath`), as is one in it |
| `/etc/mpi` | launcher of an MPIJob, and of a TrainJob with MPI | refused (`InvalidPath`), as is one in it |
| `/job` | launcher of a TrainingJob | stays, and the job says that it hides a copy of the hosts files |
| `/root/.ssh`, or `sshAuthMountPath` | pods with ssh | stays; if it is no Secret, the job says that it hides the keys |
| `/etc/ssh` | workers with ssh | stays: your host keys, which the launcher does not check |
| a folder around one of these, such as `/etc` | | stays if it can be written to; refused if it is read-only |

Other containers of the pod may mount anything anywhere.
A volume whose name is one of Muster's (`muster-ssh`, `muster-hosts-edl`, `muster-hosts-job`, `muster-hosts-mpi`,
`mpi-hostfile`) is refused in the roles that get it (`ReservedName`).
"""


def page() -> str:
    """`docs/pods.md`."""
    tables = {"pod": POD, "container": CONTAINER, "metadata": METADATA}
    return PAGE.format(**{name: "\n".join(_table(rules)) for name, rules in tables.items()})


def _table(rules: Mapping[str, Rule]) -> Iterator[str]:
    plain = [f"`{name}`" for name, rule in sorted(rules.items()) if rule == PASSED]
    yield f"Passed on: {', '.join(plain)}.\n\n| field | what becomes of it | |\n| --- | --- | --- |"
    for name, rule in sorted(rules.items()):
        if rule != PASSED:
            note = rule.note[:1].upper() + rule.note[1:]
            yield f"| `{name}` | {rule.treatment} | {note.removesuffix('.')}{'.' if note else ''} |"


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "pods.md").write_text(page())


if __name__ == "__main__":
    main()
