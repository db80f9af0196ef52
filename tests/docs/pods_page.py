"""The page of all fields of a pod template, made from the tables of `shared/frameworks/templates.py`.

Pure, but for `make pages`, which writes `docs/pods.md`.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from shared.frameworks.templates import CONTAINER, METADATA, PASSED, POD, Rule

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
