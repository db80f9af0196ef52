"""`python -m devcluster.binaries.another v1.37.2`: the control plane of another version of Kubernetes.

It is built once from Go modules, beside the pinned one, and its folder is printed: tests run on it with
`KUBEBUILDER_ASSETS` (`make test-real KUBERNETES=v1.37.2`).  Nothing pins what such a version requires: Go decides, by
the `go.mod` of Kubernetes.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from devcluster.binaries import CONTROL_PLANE, MissingProgram, cache, compile_into, find, run_go

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
    parser = argparse.ArgumentParser(prog="python -m devcluster.binaries.another", description=__doc__)
    parser.add_argument("version", help="such as v1.37.2")
    try:
        print(control_plane(parser.parse_args().version))
    except MissingProgram as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
