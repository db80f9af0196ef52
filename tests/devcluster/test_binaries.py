"""Where the real control plane's programs are looked for, and what is said when they are nowhere."""

import sys
from pathlib import Path

import pytest

from devcluster import binaries
from devcluster.binaries import MissingProgram
from devcluster.binaries.__main__ import module_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no programs of the user's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def test_what_people_have_already_comes_first(cache: Path, monkeypatch: pytest.MonkeyPatch):
    assets = cache / "assets"
    assets.mkdir()
    (assets / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert binaries.find("etcd") == assets / "etcd"
    with pytest.raises(MissingProgram, match="kube-controller-manager is not on this machine"):
        binaries.find("kube-controller-manager")


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("kube-apiserver", "make binaries"),
        ("kubectl", "make binaries"),
        ("kubelet", "python -m devcluster.binaries node"),
        ("fakenodes", "python -m devcluster.binaries bench"),
        ("helm", "python -m devcluster.binaries deploy"),
        ("nats", "python -m devcluster.binaries deploy"),
    ],
)
def test_a_missing_program_says_how_to_get_it(cache: Path, program: str, command: str):
    with pytest.raises(MissingProgram, match=f"{program} is not on this machine: build it with `{command}`"):
        binaries.find(program)


def test_without_go_it_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingProgram, match=r"install Go 1\.26 or newer"):
        binaries.build("etcd")


def test_a_build_that_fails_leaves_nothing_and_says_why(cache: Path, monkeypatch: pytest.MonkeyPatch):
    go = cache / "bin" / "go"
    go.parent.mkdir()
    # It dies while it writes.
    half = "open(sys.argv[sys.argv.index('-o') + 1], 'w').write('half')"
    go.write_text(f"#!{sys.executable}\nimport sys\n{half}\nsys.exit('no such module')\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent))
    with pytest.raises(MissingProgram, match="no such module"):
        binaries.build("etcd")
    with pytest.raises(MissingProgram):
        binaries.find("etcd")
    assert [path for path in (cache / "cache").rglob("*") if path.is_file()] == []


def test_all_kubernetes_modules_are_of_the_version_that_is_told():
    minor_and_patch = binaries.kubernetes_version().removeprefix("v1.")
    lines = (binaries.HERE / "go.mod").read_text().splitlines()
    replaced = [line.split()[-1] for line in lines if " => k8s.io/" in line]
    assert len(replaced) > 25
    assert set(replaced) == {f"v0.{minor_and_patch}"}


def test_another_version_of_kubernetes_is_required_with_its_own_parts_alone():
    theirs = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/api v0.0.0\n\tk8s.io/utils v0.0.0-2026\n)\n"
    assert module_of(theirs, "v1.37.2").splitlines()[2:] == [
        "go 1.26.0",
        "",
        "require k8s.io/kubernetes v1.37.2",
        "",
        "replace k8s.io/api => k8s.io/api v0.37.2",
    ]
