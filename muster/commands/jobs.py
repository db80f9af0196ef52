"""The commands about jobs: what happened to them, and changes of those that run."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.commands.arguments import (
    TIMEOUT_SECONDS,
    Everywhere,
    JobName,
    Namespace,
    NamespaceOrAll,
    Nats,
    OneOrAll,
    Timeout,
    Uid,
    Wait,
    job_names,
    named,
    named_job,
    on_cluster,
    running,
    settings,
)
from muster.terminal import Output, wrong_usage

if TYPE_CHECKING:
    from muster.following import Change
    from shared.cluster.kube import KubeCluster
    from shared.telling.targets import Asked


def schema(
    type_: Annotated[str, typer.Argument(metavar="[TYPE]", help="one type, such as JobRunning; all without it")] = "",
    as_asyncapi: Annotated[bool, typer.Option("--asyncapi", help="the AsyncAPI 3 document of all events")] = False,
) -> None:
    """Print the JSON Schema of events, for programs that subscribe to them."""
    import msgspec

    from muster.schemas import KINDS, asyncapi, of_all, of_type

    if type_ and as_asyncapi:
        raise typer.BadParameter("the AsyncAPI document is of all types; leave TYPE out")
    if type_ and type_ not in KINDS:
        raise typer.BadParameter(f"no event has the type {type_}; `muster schema` prints all of them")
    found = asyncapi() if as_asyncapi else of_type(type_) if type_ else of_all()
    typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


def get(
    target: OneOrAll = "",
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    gone: Annotated[bool, typer.Option("--gone", help="also jobs whose resource is gone")] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="more columns, or all that is known as JSON or YAML")
    ] = "table",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="go on with a line for each change, until Ctrl-C")
    ] = False,
    selector: Annotated[
        str,
        typer.Option("--selector", "-l", metavar="LABELS", help="only jobs with these labels, as with kubectl"),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="the same as -o json")] = False,
    nats: Nats = False,
) -> None:
    """Show the jobs in the log: phase, Ready and wanted pods, restarts, age."""
    from muster import terminal
    from muster.get import Options
    from muster.get import get as show
    from shared.telling.selection import labels

    asked = named_job(target, "get", "shows") if target else None
    if asked is not None and everywhere:
        raise typer.BadParameter("a job is in one namespace; say -n NAMESPACE instead of -A")
    if selector and asked is not None:
        raise typer.BadParameter("-l chooses among jobs; leave KIND/NAME out")
    with wrong_usage("--selector"):
        labels(selector)
    output = "json" if as_json else output
    colours = output in ("table", "wide") and terminal.has_colours()
    options = Options(
        "" if everywhere else namespace,
        asked=asked,
        output=output,
        gone=gone,
        watch=watch,
        selector=selector,
        width=terminal.width(),
        colours=colours,
    )
    running(lambda: show(settings(), options, nats=nats))


def history(
    target: Annotated[
        str,
        typer.Argument(metavar="KIND/NAME", help="the job; or `accept` or `disown`", autocompletion=job_names),
    ],
    accepted: Annotated[
        str,
        typer.Argument(
            metavar="[KIND/NAME|SEQ]",
            help="`accept`: the job whose loss is accepted; `disown`: the event that holds its job and is nonsense",
        ),
    ] = "",
    namespace: Namespace = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with later events")] = False,
    at: Annotated[str, typer.Option(help="end at this sequence or RFC 3339 time, and print the state there")] = "",
    decisions: Annotated[bool, typer.Option("--decisions", help="leave the facts out")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="whole events, one JSON object a line")] = False,
    reason: Annotated[str, typer.Option(help="why an event is disowned; it becomes part of the history")] = "",
    nats: Nats = False,
) -> None:
    """Show the events of a job, one a line, from the log alone."""
    from muster.history import Part, accept, disown, show

    if target == "accept":
        if not accepted:
            raise typer.BadParameter("accept whose loss? say `muster history accept trainingjob/NAME`")
        lost = named(accepted)
        running(lambda: accept(lost, namespace, settings(), nats=nats))
        return
    if target == "disown":
        if not accepted.isdecimal() or not reason:
            raise typer.BadParameter("disown which event, and why? say `muster history disown SEQ --reason WHY`")
        running(lambda: disown(int(accepted), reason, settings()))
        return
    if reason:
        raise typer.BadParameter("--reason belongs to `muster history disown`")
    if accepted:
        raise typer.BadParameter(f"one KIND/NAME at a time; {accepted!r} is too many")
    job = named(target)
    part = Part(follow=follow, at=at, decisions=decisions, as_json=as_json)
    running(lambda: show(job, namespace, settings(), part, nats=nats))


def audit(
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    since: Annotated[
        str, typer.Option(metavar="AGE|TIME", help="only later ones: 30m, 2h, 7d or an RFC 3339 time")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="remove who made changes, as NATS_USER=admin")] = False,
    user: Annotated[str, typer.Option(help="`--forget`: up to the newest change of this user in each job")] = "",
    before: Annotated[str, typer.Option(metavar="AGE|TIME", help="`--forget`: only older ones, such as 90d")] = "",
) -> None:
    """Show who changed jobs: what they asked for, when, and what became of it, from the log alone."""
    from datetime import UTC, datetime

    from muster.history import audit as show
    from muster.history import forget as forgotten

    where = "" if everywhere else namespace
    if not forget and (user or before):
        raise typer.BadParameter("--user and --before say what to --forget")
    if forget:
        running(lambda: forgotten(settings(), where, user, before, datetime.now(UTC)))
        return
    running(lambda: show(settings(), where, since, datetime.now(UTC), as_json=as_json))


def logs(
    target: JobName,
    namespace: Namespace = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the job is over")] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, metavar="LINES", help="how many of the last lines of each pod; all without it")
    ] = None,
) -> None:
    """Print the logs of all pods of a job, each line after the name of its pod."""
    from muster.logs import logs as print_logs

    job = named(target)
    on_cluster(lambda cluster: print_logs(cluster, job, namespace, follow=follow, tail=tail))


def replay(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="a saved history (`muster history --json`); of --decisions and --verify also KIND/NAME",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="compare every status with the API server's, every history with its checkpoint and seal",
        ),
    ] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="decide again at each decision, and print what differs")
    ] = False,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="SETTING=VALUE", help="of --decisions: decide with it, as MUSTER_DRAIN=5"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="of --decisions: one JSON object")] = False,
    namespace: NamespaceOrAll = "",
    nats: Nats = False,
) -> None:
    """Fold a saved history; with --decisions, decide it again; with --verify, compare the log with each status."""
    from muster.replay import decide_again, from_file
    from muster.replay import verify as verify_all

    if (with_ or as_json) and not decisions:
        raise typer.BadParameter("--with and --json belong to --decisions")
    if decisions:
        if file is None or verify:
            raise typer.BadParameter("--decisions needs one saved history or KIND/NAME")
        decide_again(file, namespace, settings(), with_ or (), as_json=as_json, nats=nats)
    elif verify:
        verify_all(file, namespace, settings())
    elif file is not None:
        from_file(file)
    else:
        raise typer.BadParameter("say --verify to compare with the API server, or name a saved history")


def why(
    target: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME", help="the job, or a scalein/NAME or scaleout/NAME", autocompletion=job_names
        ),
    ],
    about: Annotated[
        str,
        typer.Argument(
            metavar="POD|REQUEST",
            help="one of its pods (resnet-worker-3, worker-3, 3, launcher) or requests (scaleout/NAME, NAME)",
        ),
    ] = "",
    namespace: Namespace = "",
    uid: Uid = "",
    as_json: Annotated[bool, typer.Option("--json", help="a list of events with their causes")] = False,
    nats: Nats = False,
) -> None:
    """Explain the state of a job, a pod or a request: the causes back to the first, from the log alone."""
    from muster.asking import why as say_why

    asked = named(target)
    running(lambda: say_why(asked, about, namespace, settings(), uid=uid, as_json=as_json, nats=nats))


def report(
    target: OneOrAll = "",
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    since: Annotated[
        str, typer.Option(metavar="AGE|TIME", help="what places did from then on: 90s, 30m, 2h, 7d, or RFC 3339")
    ] = "",
    uid: Uid = "",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="the hours of each job by bucket and resource")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the drawing of `muster ui` into a file of its own")
    ] = None,
    nats: Nats = False,
) -> None:
    """Show the whole life of a job, or what the jobs of a namespace cost, from the log alone.

    Of a job: phases, attempts, scalings, failures, and who changed what.  Of both: where the time of places went, and
    the dearest incidents.
    """
    from datetime import UTC, datetime

    from muster.history import begin_of
    from shared.runtime.appends import stamp

    now = datetime.now(UTC)
    begin = begin_of(since, now)
    if begin is not None and begin > now:
        raise typer.BadParameter(f"--since {since!r} is in the future; say a time that was")
    after = stamp(begin) if begin is not None else ""
    if as_json + as_csv + (html is not None) > 1:
        raise typer.BadParameter("--json and --csv print, and --html writes a file; say one of them")
    if not target:
        from muster.usage import usage

        if uid or html is not None:
            raise typer.BadParameter("--uid and --html are about one job; say KIND/NAME")
        where = "" if everywhere else namespace
        running(lambda: usage(settings(), where, after, as_json=as_json, as_csv=as_csv, nats=nats))
        return
    asked = named_job(target, "report", "tells of")
    if everywhere:
        raise typer.BadParameter("a job is in one namespace; say -n NAMESPACE instead of -A")
    if html is not None:
        from muster.page.drawing import write

        if since:
            raise typer.BadParameter("--html draws the whole life; leave --since out")
        running(lambda: write(html, asked, namespace, settings(), uid=uid, nats=nats))
        return
    from muster.asking import report as show

    running(lambda: show(asked, namespace, settings(), uid=uid, since=after, as_json=as_json, as_csv=as_csv, nats=nats))


def timeline(
    target: JobName,
    namespace: Namespace = "",
    uid: Uid = "",
    nats: Nats = False,
) -> None:
    """Draw what each pod of a job did and when, over all attempts: it waited, trained, was lost, left."""
    from muster.asking import timeline as draw

    asked = named_job(target, "timeline", "draws")
    running(lambda: draw(asked, namespace, settings(), uid=uid, nats=nats))


def trace(
    target: JobName,
    namespace: Namespace = "",
    uid: Uid = "",
    to: Annotated[
        str, typer.Option(metavar="URL", help="where OTLP over HTTP is taken, without its path")
    ] = "http://localhost:4318",
    nats: Nats = False,
) -> None:
    """Send a job's life as one trace of OpenTelemetry, to Tempo, Jaeger or a collector.  It takes the extra `otel`.

    Parts that are over are sent, so send it again once the job is over: ids stay the same.  Headers, certificates and
    the time that an answer may take are those of OTEL_EXPORTER_OTLP_... in the environment.
    """
    from muster.trace import trace as send

    asked = named_job(target, "trace", "sends")
    running(lambda: send(asked, namespace, settings(), uid=uid, nats=nats, to=to))


def ui(
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port on 127.0.0.1; 0 for any that is free")] = 8686,
    nats: Nats = False,
) -> None:
    """Show jobs, their timelines and the fleet in a browser, with the rights of the other commands, until Ctrl-C."""
    from muster.page.server import ui as serve

    where = "" if everywhere else namespace
    running(lambda: serve(settings(), where, nats=nats, port=port))


def scale(
    target: JobName,
    to: Annotated[int, typer.Option("--to", min=1, help="the number of workers")],
    namespace: Namespace = "",
    wait: Wait = True,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Scale a running job to a number of workers."""
    from muster.steering import ask_for

    _steered(lambda cluster, job: ask_for(cluster, job, namespace, to), target, wait=wait, timeout=timeout)


def suspend(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Suspend a job: its pods are deleted, its size and history stay."""
    from muster.steering import ask_to_suspend

    _steered(lambda cluster, job: ask_to_suspend(cluster, job, namespace), target, wait=wait, timeout=timeout)


def resume(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Resume a suspended job, in a new attempt of the same size."""
    from muster.steering import ask_to_resume

    _steered(lambda cluster, job: ask_to_resume(cluster, job, namespace), target, wait=wait, timeout=timeout)


def restart(target: JobName, namespace: Namespace = "", wait: Wait = True, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """Restart a running job in a new attempt; it does not count against backoffLimit."""
    from muster.steering import ask_to_restart

    _steered(
        lambda cluster, job: ask_to_restart(cluster, job, namespace, wait=wait), target, wait=wait, timeout=timeout
    )


def _steered(
    ask: "Callable[[KubeCluster, Asked], Awaitable[Change]]", target: str, *, wait: bool, timeout: int
) -> None:
    from muster.following import carried_out

    job = named(target)
    on_cluster(lambda cluster: carried_out(cluster, ask(cluster, job), wait=wait, timeout=timeout))
