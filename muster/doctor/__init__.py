"""`muster doctor`: examines an installation from outside; one finding a line, with its remedy.

It reads the environment, as every command, and the API server and the log with the rights of the person who runs it.
It prints findings (`findings.py`), each of one check, as text for people or as one JSON document for programs.
It changes nothing: reviews of rights only ask, and the log is only read.

`log_examination.py` and `cluster_examination.py` ask the questions; each part has a time limit and fails alone.
Pure rules judge the answers: `servers.py`, `definitions.py`, `rights.py`, `policies.py`, `log.py`.
`examine` runs both at the same time and prints the findings.

The requirements of a service's start are in `shared.cluster.examination` and `shared.eventlog.setup`, because the
services check them too.
"""

import asyncio

import msgspec
import typer

from muster.doctor import definitions, servers
from muster.doctor.cluster_examination import ClusterExamination
from muster.doctor.findings import Choices, Finding, document, fail, in_order, is_well, ok, text
from muster.doctor.log_examination import LogExamination
from muster.terminal import say
from shared.installation.plugins import installed
from shared.process.settings import Settings
from shared.release import this_release


async def examine(settings: Settings, choices: Choices, *, as_json: bool) -> None:
    """Examine, print, and exit with 1 if a check fails."""
    findings = await all_findings(settings, choices)
    said = msgspec.json.format(msgspec.json.encode(document(findings))).decode() if as_json else text(findings)
    say(said)
    if not is_well(findings):
        raise typer.Exit(1)


async def all_findings(settings: Settings, choices: Choices) -> list[Finding]:
    """All findings, in the order in which they are printed."""
    log, cluster = LogExamination(settings, choices), ClusterExamination(settings, choices)
    of_log, of_cluster = await asyncio.gather(log.findings(), cluster.findings())
    left_out = installed().left_out
    found = [
        ok("versions.command", f"muster {this_release()}"),
        *(fail("packages.left_out", why, "fix or remove the package; its jobs are left alone") for why in left_out),
        *of_cluster,
        *of_log,
    ]
    if log.ends and cluster.reached:
        found += servers.lag(cluster.pods, log.ends, choices.home)
    if log.identity and cluster.anchors:
        found += await log.of_anchors(cluster.anchors)
    if log.identity and cluster.annotations:
        scopes = {pod.scope for pod in cluster.pods} or {settings.namespace}
        found += [definitions.claims(cluster.annotations, scope, log.identity) for scope in sorted(scopes)]
    return in_order(found)
