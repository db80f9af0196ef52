"""The commands that change a running job, in the cluster of kubectl's current context."""

from typing import Annotated

import typer

from muster.commands.arguments import TIMEOUT_SECONDS, JobName, Namespace, Timeout, Wait, named, on_cluster


def scale(
    target: JobName,
    to: Annotated[int, typer.Option("--to", min=1, help="the number of workers")],
    namespace: Namespace = "",
    wait: Wait = True,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Scale a running job to a number of workers."""
    from muster.scale import to as scale_to

    job = named(target)
    on_cluster(lambda cluster: scale_to(cluster, job, namespace, to, wait=wait, timeout=timeout))


def suspend(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Suspend a job: its pods are deleted, its size and history stay."""
    from muster.suspend import suspend as pause

    job = named(target)
    on_cluster(lambda cluster: pause(cluster, job, namespace, wait=wait, timeout=timeout))


def resume(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Resume a suspended job, in a new attempt of the same size."""
    from muster.suspend import resume as go_on

    job = named(target)
    on_cluster(lambda cluster: go_on(cluster, job, namespace, wait=wait, timeout=timeout))


def restart(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Restart a running job in a new attempt; it does not count against backoffLimit."""
    from muster.restart import restart as begin_again

    job = named(target)
    on_cluster(lambda cluster: begin_again(cluster, job, namespace, wait=wait, timeout=timeout))
