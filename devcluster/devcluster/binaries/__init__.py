"""Kubernetes' own programs for the real control plane and the real node: found, or built from Go modules.

`go.mod` and `go.sum` here pin the versions.  The programs are kept outside the tree, in one folder for each state of
their sources, so that all checkouts on a machine share one build.  Programs in the folder `KUBEBUILDER_ASSETS` (the
convention of envtest) come first.  `devcluster.controlplane` and `devcluster.realnode` start them.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet", "coredns")
BENCH = ("fakenodes",)
DEPLOY = ("helm", "nats", "rules")
QUEUES = ("kueue",)

SETS = {"control-plane": CONTROL_PLANE, "node": NODE, "bench": BENCH, "deploy": DEPLOY, "queues": QUEUES}

_OURS = {"etcd": "etcd", "fakenodes": "fakenodes", "coredns": "coredns", "rules": "rules"}
"""Programs whose `main` package is in this folder."""

_THEIRS = {
    "helm": "helm.sh/helm/v4/cmd/helm",
    "nats": "github.com/nats-io/natscli/nats",
    "kueue": "sigs.k8s.io/kueue/cmd/kueue",
}
"""Programs of other modules, pinned by a module in the folder of that name; all others are of k8s.io/kubernetes."""

_GO_MISSING = (
    "Go is needed to build programs and is not installed: install Go 1.26 or newer from https://go.dev/dl, "
    "or name a folder that has the programs in KUBEBUILDER_ASSETS"
)


class MissingProgram(Exception):  # noqa: N818 - what is the matter
    """A program is not on this machine; the message says how to get it."""


def find(program: str) -> Path:
    """The path of `program`.  Raises `MissingProgram`."""
    for folder in _folders(program):
        if (folder / program).exists():
            return folder / program
    named = next(name for name in SETS if program in SETS[name])
    command = "make binaries" if named == "control-plane" else f"python -m devcluster.binaries {named}"
    raise MissingProgram(f"{program} is not on this machine: build it with `{command}`, or set KUBEBUILDER_ASSETS")


def kubectl() -> Path:
    """The kubectl on the PATH, or else the built one.  Raises `MissingProgram`."""
    installed = shutil.which("kubectl")
    return Path(installed) if installed else find("kubectl")


def build(program: str) -> Path:
    """Build `program` into the cache, even if it is there.  Raises `MissingProgram` without Go or when Go fails."""
    module, package = _source(program)
    target = _cache(program) / program
    compile_into(target, package, kubernetes_version(), within=module)
    return target


def compile_into(target: Path, package: str, version: str, *, within: Path) -> None:
    """Compile a `main` package of a module's folder, of that version.  Raises `MissingProgram`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # Built under a temporary name, so that an interrupted build does not look finished.
    unfinished = target.with_suffix(f".{os.getpid()}")
    try:
        run_go("build", "-trimpath", "-ldflags", _flags(version), "-o", str(unfinished), package, within=within)
    except MissingProgram:
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.rename(target)


def run_go(*words: str, within: Path) -> str:
    """What a command of Go says in that folder.  Raises `MissingProgram` without Go or when it fails."""
    go = shutil.which("go")
    if go is None:
        raise MissingProgram(_GO_MISSING)
    settings = {**os.environ, "CGO_ENABLED": "0"}
    ended = subprocess.run([go, *words], cwd=within, env=settings, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise MissingProgram(f"go {words[0]} {words[-1]} failed:\n{ended.stderr[-2000:]}")
    return ended.stdout


def kubernetes_version() -> str:
    """The version of all programs of Kubernetes, such as `v1.36.1`."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (HERE / "go.mod").read_text(), re.MULTILINE)
    assert found, "go.mod requires k8s.io/kubernetes"
    return found[1]


def _folders(program: str) -> list[Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    return [*([Path(assets)] if assets else []), _cache(program)]


def _source(program: str) -> tuple[Path, str]:
    """The folder of the program's module, and the package in it."""
    if program in _THEIRS:
        return HERE / program, _THEIRS[program]
    if program not in _OURS:
        return HERE, f"k8s.io/kubernetes/cmd/{program}"
    folder = HERE / _OURS[program]
    return (folder, ".") if (folder / "go.mod").exists() else (HERE, f"./{_OURS[program]}")


def _cache(program: str) -> Path:
    module, package = _source(program)
    sources = [module / "go.mod", module / "go.sum"]
    if package.startswith("."):
        sources += sorted((module / package).glob("*.go"))
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    return cache(digest.hexdigest()[:16])


def cache(name: str) -> Path:
    """The folder of that name among the built programs."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "muster" / "binaries" / name


def _flags(version: str) -> str:
    """The linker flags: no debug information, and the version."""
    major, minor, _ = version.removeprefix("v").split(".")
    named = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in named.items())])
