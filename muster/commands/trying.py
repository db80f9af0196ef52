"""`muster demo`: all of Muster on one machine, for a first look."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.terminal import fail

if TYPE_CHECKING:
    from muster.stack import Host


class ClusterKind(StrEnum):
    """The cluster that the demo runs on."""

    embedded = "embedded"
    real = "real"
    k3s = "k3s"
    current = "current"


def hosts(kind: ClusterKind) -> "Callable[..., Host]":
    """The class of a cluster of this kind."""
    match kind:
        case ClusterKind.embedded:
            from devcluster.start import Devcluster

            return Devcluster
        case ClusterKind.real:
            from devcluster.controlplane import ControlPlane

            return ControlPlane
        case ClusterKind.k3s:
            from muster.k3s import K3sCluster

            return K3sCluster
        case ClusterKind.current:
            from muster.borrowed import BorrowedCluster

            return BorrowedCluster


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="leave everything running until Ctrl-C")] = False,
    cluster: Annotated[
        ClusterKind,
        typer.Option(
            help="the cluster: the embedded one; the real control plane, which needs `make binaries`; K3s, which needs "
            "Docker; or the cluster that kubectl uses here, which is left as it was found"
        ),
    ] = ClusterKind.embedded,
    image: Annotated[
        str | None,
        typer.Option(help="the pods' image in the current cluster, built from examples/digits/Containerfile"),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="folder for all state; a temporary one without it")] = None,
) -> None:
    """Train a model elastically on this machine: 2 workers, then 4, then 3; then replay its history."""
    try:
        from muster.demo import main

        host = hosts(cluster)
    except ModuleNotFoundError as missing:
        # Muster's image does not include the demo.
        raise fail(
            f"the demo is not part of this installation ({missing.name}): run `make demo` in a checkout"
        ) from missing
    raise typer.Exit(main(data, host, keep=keep, image=image))
