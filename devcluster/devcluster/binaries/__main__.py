"""Builds programs that are missing.

`python -m devcluster.binaries [control-plane] [node] [bench] [deploy] [queues]` builds those of these sets.
`python -m devcluster.binaries --kubernetes v1.37.2` builds the control plane of another version once, beside the pinned
one, and prints its folder: tests run on it with `KUBEBUILDER_ASSETS` (`make test-real KUBERNETES=v1.37.2`).  Nothing
pins what such a version requires: Go decides, by the `go.mod` of Kubernetes.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path

from devcluster.binaries import CONTROL_PLANE, SETS, MissingProgram, build, cache, compile_into, find, run_go

PROGRAMS = tuple(program for program in CONTROL_PLANE if program not in ("etcd", "kubectl"))
"""The others are those of the pinned version."""

_ITS_OWN = re.compile(r"^\s*(k8s\.io/\S+) v0\.0\.0$", re.MULTILINE)
_GO = re.compile(r"^go (\S+)$", re.MULTILINE)


def control_plane(version: str) -> Path:
    """The folder of the programs of that version, such as `v1.37.2`.  Raises `MissingProgram`."""
    folder = cache(f"kubernetes-{version}")
    if not all((folder / program).exists() for program in PROGRAMS):
        module = folder / "module"
        module.mkdir(parents=True, exist_ok=True)
        downloaded = json.loads(run_go("mod", "download", "-json", f"k8s.io/kubernetes@{version}", within=module))
        (module / "go.mod").write_text(module_of(Path(downloaded["GoMod"]).read_text(), version))
        imports = "".join(f'\t_ "k8s.io/kubernetes/cmd/{program}"\n' for program in PROGRAMS)
        (module / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\nimport (\n{imports})\n")
        run_go("mod", "tidy", within=module)
        for program in PROGRAMS:
            print(f"building {program} {version}, which takes minutes", file=sys.stderr, flush=True)
            compile_into(folder / program, f"k8s.io/kubernetes/cmd/{program}", version, within=module)
    for program in ("etcd", "kubectl"):
        link = folder / program
        link.unlink(missing_ok=True)
        link.symlink_to(find(program))
    return folder


def module_of(theirs: str, version: str) -> str:
    """A `go.mod` that requires Kubernetes, whose own one replaces its parts by folders that only its own tree has."""
    go = _GO.search(theirs)
    parts = f"v0.{version.removeprefix('v1.')}"
    replaced = "".join(f"replace {name} => {name} {parts}\n" for name in sorted({*_ITS_OWN.findall(theirs)}))
    head = f"module muster.dev/another\n\ngo {go[1] if go else '1.26'}\n\nrequire k8s.io/kubernetes {version}\n\n"
    return head + replaced


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m devcluster.binaries", description=__doc__)
    parser.add_argument("sets", nargs="*", default=["control-plane"], metavar="|".join(SETS))
    parser.add_argument("--kubernetes", metavar="VERSION", help="the control plane of another version, such as v1.37.2")
    given = parser.parse_args()
    wanted = given.sets
    if unknown := set(wanted) - set(SETS):
        parser.error(f"{', '.join(sorted(unknown))}: none of {', '.join(SETS)}")
    try:
        if given.kubernetes:
            print(control_plane(given.kubernetes))
            return 0
        for program in (program for name in wanted for program in SETS[name]):
            _have(program)
    except MissingProgram as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _have(program: str) -> None:
    try:
        find(program)
    except MissingProgram:
        began = time.monotonic()
        print(f"building {program}; the first build takes minutes", flush=True)
        path = build(program)
        print(f"built {path} in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
