"""The commands for administrators: install, run and examine Muster; and `muster demo`, for a first look."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from muster.commands.arguments import in_namespace, running, settings, with_options
from muster.terminal import fail, say, wrong_usage


def run(
    nats: Annotated[Literal["given", "embedded"], typer.Option(help="NATS_URL's server, or an embedded one")] = "given",
    data: Annotated[Path, typer.Option(help="folder of the embedded server's store")] = Path(".muster"),
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="only this namespace")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="wait for missing servers and rights, as in a pod")] = False,
) -> None:
    """Run the whole operator, all four services, in this process."""

    from muster.run import run_all
    from shared.process.main import until_stopped

    chosen = in_namespace(namespace)
    folder = data if nats == "embedded" else None
    running(lambda: until_stopped(run_all(chosen, folder, wait=wait)))


class SetupOptions(NamedTuple):
    """The options of `muster setup`; sizes that are None stay as they are."""

    replicas: Annotated[
        int | None, typer.Option(min=1, max=5, help="copies of the log: 3 on a cluster of servers; 1 for a new log")
    ] = None
    max_bytes: Annotated[
        int | None, typer.Option(min=-1, help="how large the log may become; -1 is the disk, as for a new log")
    ] = None
    archive_bytes: Annotated[
        int | None, typer.Option(min=-1, help="how large the archive may become; -1 is the disk, as for a new one")
    ] = None
    subscribers: Annotated[
        int | None,
        typer.Option(
            min=2**20, metavar="BYTES", help="make a copy of the log for subscribers, of this size beside the log"
        ),
    ] = None
    subscriber: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMESPACE=BYTES", help="the same of one namespace's events; may be repeated"),
    ] = None
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="claim this namespace only; MUSTER_NAMESPACE's without it")
    ] = None
    log_only: Annotated[bool, typer.Option("--log-only", help="without Kubernetes: no definitions, no claim")] = False
    check: Annotated[bool, typer.Option("--check", help="change nothing; exit code 1 when something would change")] = (
        False
    )
    take_crds: Annotated[
        bool, typer.Option("--take-crds", help="replace definitions of another operator, or changed ones")
    ] = False
    take_scope: Annotated[
        bool, typer.Option("--take-scope", help="take the scope from an installation that is gone")
    ] = False
    release: Annotated[
        bool, typer.Option("--release", help="only give the scope up; with --take-scope without the log")
    ] = False
    wait: Annotated[
        bool,
        typer.Option("--wait", help="also wait for what a person has to fix, such as a password"),
    ] = False
    timeout: Annotated[int, typer.Option(min=0, metavar="SECONDS", help="how long to wait for servers, 0 for ever")] = (
        300
    )
    data: Annotated[
        Path | None,
        typer.Option(help="the folder of a server that `muster run` or `muster demo` runs here, as its administrator"),
    ] = None


@with_options
def setup(options: SetupOptions) -> None:
    """Make or check the log and the definitions, and claim the scope of this installation.

    It needs an administrator's NATS credentials, and the right to make definitions.  It is safe to repeat: streams
    never shrink, and the definitions of a newer release stay.
    """
    from muster.setup import set_up, sizes_of

    if options.log_only and (options.release or options.take_crds or options.take_scope):
        raise typer.BadParameter("--log-only does not use Kubernetes, which has the definitions and the claims")
    if options.release and options.check:
        raise typer.BadParameter("--release has nothing to check; leave --check out")
    with wrong_usage("--subscriber"):
        sizes_of(options.subscribers, options.subscriber or ())
    running(lambda: set_up(in_namespace(options.namespace), options))


def crds() -> None:
    """Print the custom resource definitions of every kind: `muster crds | kubectl apply -f -`."""
    from muster.crds import render
    from shared.installation.plugins import installed

    for why in installed().left_out:
        typer.echo(why, err=True)
    typer.echo("---\n".join(render(installed().kinds).values()), nl=False)


def rbac(
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="for one namespace, with Roles only")] = "",
    home: Annotated[str, typer.Option(metavar="NAMESPACE", help="where the services' accounts are")] = "muster",
    take_over: Annotated[bool, typer.Option("--take-over", help="with the rights that MUSTER_TAKE_OVER needs")] = False,
    commands: Annotated[
        bool, typer.Option("--exec/--without-exec", help="with the right to run commands that MUSTER_EXEC=false spares")
    ] = True,
    keys: Annotated[
        bool, typer.Option("--ssh/--without-ssh", help="with the right to make ssh keys that MUSTER_SSH=false spares")
    ] = True,
    kueue: Annotated[bool, typer.Option("--kueue", help="with the rights that MUSTER_KUEUE needs")] = False,
    gangs: Annotated[bool, typer.Option("--gangs", help="with the rights that MUSTER_GANGS needs")] = False,
    namespace_selector: Annotated[
        str, typer.Option(metavar="LABELS", help="as MUSTER_NAMESPACE_SELECTOR: where the accounts may begin jobs")
    ] = "",
    policies: Annotated[
        bool | None,
        typer.Option(
            "--policies/--without-policies",
            help="admission policies, too: by default without --namespace, as they belong to the cluster",
        ),
    ] = None,
    requesters: Annotated[
        bool, typer.Option("--requesters", help="a policy, too, for who creates jobs and requests (docs/tenants.md)")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="the rights, too, of the history service and its readers")
    ] = False,
    progress: Annotated[
        bool,
        typer.Option(
            "--progress", help="the right, too, to check the tokens of programs that report (docs/frameworks.md)"
        ),
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="a policy, too, that the audit service needs (docs/who.md)")
    ] = False,
) -> None:
    """Print service accounts, roles and admission policies: `muster rbac | kubectl apply -f -`."""
    from shared.eventlog.account import must_be_namespace

    for option, name in (("--namespace", namespace or home), ("--home", home)):
        with wrong_usage(option):
            must_be_namespace(name, "make rights for")
    if namespace == home:
        raise typer.BadParameter(
            f"the services' accounts would be in {home}, and whoever may make pods there may run them under these "
            "accounts; name a namespace without jobs: --home NAMESPACE"
        )
    if kueue and namespace:
        raise typer.BadParameter("queues of Kueue need the whole cluster; leave --namespace out")
    if history and namespace:
        raise typer.BadParameter("the history service answers for the whole cluster; leave --namespace out")
    from muster.permissions import render
    from shared.cluster.scope import labels_of
    from shared.installation.permissions import Powers
    from shared.installation.plugins import installed

    for why in installed().left_out:
        typer.echo(why, err=True)
    files = render(
        namespace,
        installed().kinds,
        home=home,
        powers=Powers(take_over, commands, keys, kueue, gangs, labels_of(namespace_selector), progress),
        with_policies=policies,
        with_requesters=requesters,
        with_history=history,
        with_audit=audit,
    )
    typer.echo("---\n".join(files.values()), nl=False)


def audit_policy() -> None:
    """Print the audit policy of an API server that tells the audit service who writes jobs (docs/who.md)."""
    import yaml

    from muster.policies import log_policy
    from shared.installation.plugins import installed

    typer.echo(yaml.safe_dump(log_policy(installed().kinds), sort_keys=False), nl=False)


def doctor(
    installed_in: Annotated[
        str,
        typer.Option(
            "--installation-namespace",
            metavar="NAMESPACE",
            help="the services' namespace; by default that of this pod, then muster",
        ),
    ] = "",
    release: Annotated[str, typer.Option(help="the Helm release, if a namespace has several")] = "",
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="how long each server may take")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document")] = False,
) -> None:
    """Examine an installation from outside: versions, definitions, rights, log, services, jobs, clocks."""
    from muster.doctor import examine
    from muster.doctor.findings import Choices, home

    known, choices = settings(), Choices(installed_in or home(), release, timeout)
    running(lambda: examine(known, choices, as_json=as_json))


if TYPE_CHECKING:
    from muster.stack import Host


ClusterKind = Literal["embedded", "real", "k3s", "current"]
"""The cluster that the demo runs on."""


def hosts(kind: ClusterKind) -> "Callable[..., Host]":
    """The class of a cluster of this kind."""
    match kind:
        case "embedded":
            from devcluster.cluster import Devcluster

            return Devcluster
        case "real":
            from devcluster.controlplane import ControlPlane

            return ControlPlane
        case "k3s":
            from muster.borrowed import K3sCluster

            return K3sCluster
        case "current":
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
    ] = "embedded",
    image: Annotated[
        str | None,
        typer.Option(help="the pods' image in the current cluster, built from examples/digits/Containerfile"),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="folder for all state; a temporary one without it")] = None,
) -> None:
    """Train a model elastically on this machine: 2 workers, then 4, then 3; then replay its history."""
    with _development():
        from muster.demo import main

        host = hosts(cluster)
    raise typer.Exit(main(data, host, keep=keep, image=image))


def try_program(
    program: Annotated[Path, typer.Argument(help="a Python program, such as train.py")],
    arguments: Annotated[list[str] | None, typer.Argument(help="what it is given, behind --")] = None,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="how many run it at first")] = 2,
    python: Annotated[
        str, typer.Option(help="the Python; by default that of the active environment, then python3")
    ] = "",
    keep: Annotated[bool, typer.Option("--keep", help="leave everything running after its end, until Ctrl-C")] = False,
    export: Annotated[
        bool, typer.Option("--export", help="run nothing; print the job's manifest for a cluster with Muster")
    ] = False,
    image: Annotated[str, typer.Option(help="of --export: the image with the program in its working folder")] = "IMAGE",
    data: Annotated[Path | None, typer.Option(help="folder for all state; a temporary one without it")] = None,
) -> None:
    """Run a program of yours as an elastic job on this machine, in the current folder, with your rights."""
    with _development(), wrong_usage():
        import yaml

        from muster.demo import carried_out
        from muster.trial import Trial, examined, manifest

        found = examined(program, arguments or (), python)
    if export:
        say(yaml.safe_dump(manifest(found, workers, Path.cwd(), image), sort_keys=False), nl=False)
        return
    raise typer.Exit(carried_out(data, lambda folder, teller: Trial(folder, teller, found, workers, keep=keep).run()))


@contextmanager
def _development() -> Iterator[None]:
    """Muster's image does not include the development cluster: that is one line."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise fail(
            f"the demo is not part of this installation ({missing.name}): install muster[demo], "
            "or run `make demo` in a checkout"
        ) from missing
