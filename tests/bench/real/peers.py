"""Peers: other operators that are measured beside Muster in the same run.  `peers.md` says how to write an adapter.

peer = load(Path("/somewhere/adapter.py"))
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from tests.bench.real.client import Meta
from tests.bench.real.manifests import Manifest


class Peer(Protocol):
    """What an adapter says of its operator; a module is one."""

    NAME: str
    """The head of its column."""

    def objects(self) -> Sequence[Manifest]:
        """What stands in the cluster before the operator starts, in this order: its definitions above all."""

    def command(self, kubeconfig: Path, folder: Path) -> Sequence[str]:
        """The program to run, with its arguments.  `folder` is its own, and goes with the cluster."""

    def manifest(self, name: str, namespace: str, workers: int) -> Manifest:
        """A job of so many workers, with the resource requests of `manifests.training_job`."""

    def running(self, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        """True if a job's status says that all of it runs."""

    def is_worker(self, pod: str) -> bool:
        """True if a pod of this name is one of a job's workers, and not its launcher, master or chief."""


Peers = Sequence[Peer]

PARTS = ("NAME", "objects", "command", "manifest", "running", "is_worker")


class AdapterError(Exception):
    """The file is no adapter."""


def load(path: Path) -> Peer:
    """Raises `AdapterError` with a line that says what to do."""
    if not path.is_file():
        raise AdapterError(f"{path}: there is no such file; give the path of an adapter, as in PEER=/path/adapter.py")
    spec = importlib.util.spec_from_file_location(f"peer_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise AdapterError(f"{path}: an adapter is a Python file; its name ends with .py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if missing := [part for part in PARTS if not hasattr(module, part)]:
        raise AdapterError(f"{path}: add {', '.join(missing)}; tests/bench/real/peers.md says what each is")
    return cast(Peer, module)


class PeerJob(msgspec.Struct, frozen=True):
    """A job of a peer: only the adapter knows what its status means."""

    metadata: Meta = Meta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
