"""The commands, their arguments and their help; what they do is in files of their names."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from muster.following import TIMEOUT_SECONDS
from muster.targets import Asked, fail, parse_target
from shared.errors import Refused
from shared.service.settings import Settings, complaint

if TYPE_CHECKING:
    from muster.stack import Host
    from shared.cluster import Cluster

app = typer.Typer(
    help="Elastic training jobs on Kubernetes, with every fact and decision in one log.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 waited too long, 130 Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def settings() -> Settings:
    """The environment's settings; a bad one is one line."""
    try:
        return Settings()
    except ValidationError as error:
        raise fail(complaint(error)) from error


def or_current(context: typer.Context, namespace: str) -> str:
    """The namespace that is given, else the one that kubectl would work in here; with `-A` nobody needs one."""
    from shared.cluster.access import current_namespace

    if context.params.get("everywhere"):
        return ""
    try:
        return namespace or current_namespace(settings().kubeconfig)
    except Refused as refusal:
        raise fail(str(refusal)) from refusal


Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", callback=or_current, show_default="the current context's", help="the namespace"),
]
JobName = Annotated[
    Asked, typer.Argument(parser=parse_target, metavar="KIND/NAME", help="the job: trainingjob/NAME, or only NAME")
]
Wait = Annotated[bool, typer.Option(help="wait until it is done, and print each phase on the way")]
Timeout = Annotated[
    int, typer.Option(min=0, metavar="SECONDS", help="how long to wait, 0 for ever; after that the exit code is 3")
]


class Nats(StrEnum):
    """Where the log of `muster run` is."""

    given = "given"
    embedded = "embedded"


class ClusterKind(StrEnum):
    """What the demo runs on."""

    embedded = "embedded"
    real = "real"
    k3s = "k3s"
    current = "current"


def on_cluster(work: "Callable[[Cluster], Awaitable[None]]") -> None:
    """Do something with the cluster that kubectl would use."""
    from muster.reading import open_cluster
    from muster.reading import run as running

    async def connected() -> None:
        async with open_cluster(settings()) as cluster:
            await work(cluster)

    running(connected)


def hosts(kind: ClusterKind) -> "Callable[..., Host]":
    """What makes a cluster of this kind."""
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


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="leave everything running until Ctrl-C")] = False,
    cluster: Annotated[
        ClusterKind,
        typer.Option(
            help="what to run on: our own small API server; the real control plane, which takes `make binaries`; "
            "K3s, which takes Docker; or the cluster that kubectl uses here, which is left as it was found"
        ),
    ] = ClusterKind.embedded,
    image: Annotated[
        str | None,
        typer.Option(help="what the pods run in the current cluster, built from examples/digits/Containerfile"),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="folder for all state; a temporary one without it")] = None,
) -> None:
    """Train a model elastically on this machine: 2 workers, then 4, then 3; then replay its history."""
    try:
        from muster.demo import main

        host = hosts(cluster)
    except ModuleNotFoundError as missing:
        # The image is without it: it has the services, and the commands for those who look after them.
        raise fail(
            f"the demo is not part of this installation ({missing.name}): run `make demo` in a checkout"
        ) from missing
    raise typer.Exit(main(data, host, keep=keep, image=image))


@app.command()
def run(
    nats: Annotated[Nats, typer.Option(help="NATS_URL's server, or one of our own")] = Nats.given,
    data: Annotated[Path, typer.Option(help="folder of our own server's store")] = Path(".muster"),
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="only this namespace")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="wait for what is missing at the start, as in a pod")] = False,
) -> None:
    """Run the whole operator, all four services, in this process."""

    from muster.reading import run as running
    from muster.run import run_all
    from shared.service.main import until_stopped

    chosen = settings() if namespace is None else settings().model_copy(update={"namespace": namespace})
    folder = data if nats is Nats.embedded else None
    running(lambda: until_stopped(run_all(chosen, folder, wait=wait)))


@app.command()
def setup(
    replicas: Annotated[
        int | None, typer.Option(min=1, max=5, help="copies of the log: 3 on a cluster of servers; 1 for a new log")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=-1, help="how large the log may become; -1 is the disk, as for a new log")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="claim this namespace only; MUSTER_NAMESPACE's without it")
    ] = None,
    log_only: Annotated[
        bool, typer.Option("--log-only", help="ask nothing of Kubernetes: no definitions, no claim")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="change nothing; exit code 1 when something would change")
    ] = False,
    take_crds: Annotated[
        bool, typer.Option("--take-crds", help="put our definitions over another operator's, or over changed ones")
    ] = False,
    take_scope: Annotated[
        bool, typer.Option("--take-scope", help="take the scope from an installation that is gone")
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="only give the scope up; with --take-scope without asking the log")
    ] = False,
    timeout: Annotated[
        int, typer.Option(min=0, metavar="SECONDS", help="how long to wait for servers that are not up, 0 for ever")
    ] = 300,
) -> None:
    """Make or check the log and the definitions, and claim what this installation works in.

    With an administrator's NATS credentials, and the right to make definitions.  Safe to repeat; nothing shrinks, and
    what a newer release made is left alone.
    """
    from muster.reading import run as running
    from muster.setup import Wish, set_up

    if log_only and (release or take_crds or take_scope):
        raise typer.BadParameter("--log-only asks nothing of Kubernetes, where definitions and claims are")
    if release and check:
        raise typer.BadParameter("--release is done or not; there is nothing to check")
    chosen = settings() if namespace is None else settings().model_copy(update={"namespace": namespace})
    wish = Wish(
        replicas=replicas,
        max_bytes=max_bytes,
        cluster=not log_only,
        check=check,
        take_crds=take_crds,
        take_scope=take_scope,
        release=release,
        timeout=timeout,
    )
    running(lambda: set_up(chosen, wish))


@app.command()
def crds() -> None:
    """Print the custom resource definitions of every kind: `muster crds | kubectl apply -f -`."""
    from muster.crds import render
    from shared.service.plugins import installed

    for why in installed().left_out:
        typer.echo(why, err=True)
    typer.echo("---\n".join(render(installed().kinds).values()), nl=False)


@app.command()
def rbac(
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="for one namespace, with Roles only")] = "",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="with what MUSTER_TAKE_OVER needs, while it is set")
    ] = False,
) -> None:
    """Print service accounts and roles: `muster rbac | kubectl apply -f -`."""
    from muster.permissions import render
    from shared.service.plugins import installed

    for why in installed().left_out:
        typer.echo(why, err=True)
    typer.echo("---\n".join(render(namespace, installed().kinds, taking_over=take_over).values()), nl=False)


@app.command()
def get(
    namespace: Namespace = "",
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", is_eager=True, help="the jobs of all namespaces")
    ] = False,
    gone: Annotated[bool, typer.Option("--gone", help="also jobs whose resource is gone")] = False,
) -> None:
    """List the jobs that the log knows."""
    from muster.get import jobs
    from muster.reading import run as running

    running(lambda: jobs(settings(), "" if everywhere else namespace, gone=gone))


@app.command()
def history(
    target: Annotated[str, typer.Argument(metavar="KIND/NAME", help="or `accept`, to accept a lost history")],
    accepted: Annotated[str, typer.Argument(metavar="[KIND/NAME]", help="whose loss to accept")] = "",
    namespace: Namespace = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with what happens next")] = False,
    at: Annotated[str, typer.Option(help="up to this sequence or RFC 3339 time, and the state there")] = "",
    decisions: Annotated[bool, typer.Option("--decisions", help="decisions only")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="whole events, one JSON object a line")] = False,
) -> None:
    """Show what happened to a job and why, from the log alone."""
    from muster.history import accept, show
    from muster.reading import run as running

    if target == "accept":
        if not accepted:
            raise typer.BadParameter("accept whose loss? say `muster history accept trainingjob/NAME`")
        lost = parse_target(accepted)
        running(lambda: accept(lost, namespace, settings()))
        return
    if accepted:
        raise typer.BadParameter(f"one KIND/NAME at a time; {accepted!r} is too many")
    job = parse_target(target)
    running(lambda: show(job, namespace, settings(), follow=follow, at=at, decisions=decisions, as_json=as_json))


@app.command()
def replay(
    file: Annotated[Path | None, typer.Argument(help="a history saved by `muster history --json`")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="compare every status with the API server's")] = False,
) -> None:
    """Fold the log again and show what comes out."""
    from muster import replay as replaying
    from muster.reading import run as running

    if file is not None:
        replaying.from_file(file)
    elif verify:
        running(lambda: replaying.verify(settings()))
    else:
        raise typer.BadParameter("say --verify to compare with the API server, or name a saved history")


@app.command()
def why(
    target: Annotated[
        Asked,
        typer.Argument(parser=parse_target, metavar="KIND/NAME", help="the job, or a scalein/NAME or scaleout/NAME"),
    ],
    about: Annotated[
        str,
        typer.Argument(
            metavar="POD|REQUEST",
            help="one of its pods (resnet-worker-3, worker-3, 3, launcher) or requests (scaleout/NAME, NAME)",
        ),
    ] = "",
    namespace: Namespace = "",
    uid: Annotated[str, typer.Option(help="an earlier job of that name, by its uid; the newest without it")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="a list of events with their causes")] = False,
) -> None:
    """Say why it is as it is: from the last state back to its first cause, from the log alone."""
    from muster.reading import run as running
    from muster.why import why as say_why

    running(lambda: say_why(target, about, namespace, settings(), uid=uid, as_json=as_json))


@app.command()
def scale(
    target: JobName,
    to: Annotated[int, typer.Option("--to", min=1, help="the number of workers")],
    namespace: Namespace = "",
    wait: Wait = True,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Bring a running job to a number of workers."""
    from muster.scale import to as scale_to

    on_cluster(lambda cluster: scale_to(cluster, target, namespace, to, wait=wait, timeout=timeout))


@app.command()
def suspend(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Pause a job: its pods go, its size and history stay."""
    from muster.suspend import suspend as pause

    on_cluster(lambda cluster: pause(cluster, target, namespace, wait=wait, timeout=timeout))


@app.command()
def resume(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Let a suspended job run again, in a new attempt with the size it had."""
    from muster.suspend import resume as go_on

    on_cluster(lambda cluster: go_on(cluster, target, namespace, wait=wait, timeout=timeout))


@app.command()
def restart(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Have a running job begin again in a new attempt; it does not count against backoffLimit."""
    from muster.restart import restart as begin_again

    on_cluster(lambda cluster: begin_again(cluster, target, namespace, wait=wait, timeout=timeout))


@app.command()
def doctor(
    installed_in: Annotated[
        str,
        typer.Option(
            "--installation-namespace",
            metavar="NAMESPACE",
            help="where its services run; without it MUSTER_NAMESPACE, that of the pod it runs in, else muster",
        ),
    ] = "",
    release: Annotated[str, typer.Option(help="the Helm release, where several are in one namespace")] = "",
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="how long each server may take")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document")] = False,
) -> None:
    """Examine an installation from outside: versions, definitions, rights, log, services, jobs, clocks."""
    from muster.doctor.command import examine
    from muster.doctor.parts import Wishes, home
    from muster.reading import run as running

    known = settings()
    wishes = Wishes(installed_in or home(known.namespace), release, timeout)
    running(lambda: examine(known, wishes, as_json=as_json))
