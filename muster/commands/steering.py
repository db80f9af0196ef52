"""The commands that ask something of a running job, in the cluster that kubectl would use."""

from typing import Annotated

import typer

from muster.commands.arguments import JobName, Namespace, Timeout, Wait, on_cluster
from muster.following import TIMEOUT_SECONDS
from muster.targets import parse_target


def scale(
    target: JobName,
    to: Annotated[int, typer.Option("--to", min=1, help="the number of workers")],
    namespace: Namespace = "",
    wait: Wait = True,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Bring a running job to a number of workers."""
    from muster.scale import to as scale_to

    job = parse_target(target)
    on_cluster(lambda cluster: scale_to(cluster, job, namespace, to, wait=wait, timeout=timeout))


def suspend(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Pause a job: its pods go, its size and history stay."""
    from muster.suspend import suspend as pause

    job = parse_target(target)
    on_cluster(lambda cluster: pause(cluster, job, namespace, wait=wait, timeout=timeout))


def resume(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Let a suspended job run again, in a new attempt with the size it had."""
    from muster.suspend import resume as go_on

    job = parse_target(target)
    on_cluster(lambda cluster: go_on(cluster, job, namespace, wait=wait, timeout=timeout))


def restart(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Have a running job begin again in a new attempt; it does not count against backoffLimit."""
    from muster.restart import restart as begin_again

    job = parse_target(target)
    on_cluster(lambda cluster: begin_again(cluster, job, namespace, wait=wait, timeout=timeout))
