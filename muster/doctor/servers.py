"""Findings about servers and services: versions, clocks, certificates, leases, readiness and lag.  Pure.

No decision of Muster reads a clock, so a difference harms no job; people see it when they compare times.  An expired
certificate ends no open connection, but refuses every new one: it is not noticed before a restart.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from muster.doctor.findings import Finding, fail, names, ok, unknown, warn
from muster.doctor.rights import COMPONENT, NAMESPACE, environment
from shared.eventlog.inspection import Holding
from shared.eventlog.tls import Life
from shared.installation.permissions import SERVICES_OF_A_CLUSTER as SERVICES
from shared.process.serving import Report

OLDEST_KUBERNETES = (1, 29)
"""The first version with stable CEL rules, which the definitions use; their field paths came with 1.28."""
TRIED_KUBERNETES = ((1, 36), (1, 37))
"""The version of the tests, and the newest one that they ran on; `docs/compatibility.md` says which tests."""

OLDEST_NATS = (2, 11)
"""The first version with a time to live for each message, which every lease needs."""

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")

Version = tuple[int, int]


def numbers(words: str) -> Version | None:
    """Major and minor version; None if the words begin with none."""
    found = _NUMBERS.match(words)
    return (int(found[1]), int(found[2])) if found else None


def kubernetes(server: str) -> Finding:
    """The finding about the version in `/version`."""
    why = "may not hold to the rules of the definitions"
    found, known = _old("versions.kubernetes", "Kubernetes", server, OLDEST_KUBERNETES, why), numbers(server)
    if found.status != "ok" or known is None or known in TRIED_KUBERNETES:
        return found
    on = " and ".join(map(text, TRIED_KUBERNETES))
    words = f"{found.message}; this release needs {text(OLDEST_KUBERNETES)} or newer and was tried on {on}"
    newer = known > TRIED_KUBERNETES[-1]
    return warn(found.check, words, "look for a newer release of Muster") if newer else ok(found.check, words)


def nats(server: str) -> Finding:
    """The finding about the version in the server's INFO."""
    why = "cannot let a single message run out, which every lease needs"
    return _old("versions.nats", "NATS server", server, OLDEST_NATS, why)


def _old(check: str, what: str, server: str, oldest: Version, why: str) -> Finding:
    """The finding about a version that has to be the `oldest` or a newer one, and why."""
    known = numbers(server)
    if known is None:
        return unknown(check, f"{what}: {server!r} is no version that can be read")
    if known < oldest:
        words = f"{what} {server} is older than {text(oldest)}, and {why}"
        return fail(check, words, f"upgrade it to {text(oldest)} or newer")
    return ok(check, f"{what} {server}")


def releases(versions: Iterable[tuple[str, str]], own: str) -> list[Finding]:
    """The findings about the versions of pods, by name; `own` is this command's.  An unknown version is empty."""
    check = "versions.services"
    by_version: dict[str, list[str]] = {}
    for pod, each in versions:
        by_version.setdefault(each, []).append(pod)
    silent = by_version.pop("", [])
    if not by_version:
        return [unknown(check, f"services: {names(silent)} do not say which version they are")] if silent else []
    told = "; ".join(f"{each}: {names(pods)}" for each, pods in sorted(by_version.items()))
    if len(by_version) > 1:
        remedy = "finish the roll-out; an older service holds every job that has an event of a newer one"
        return [warn(check, f"services run in several versions ({told})", remedy)]
    if own not in by_version:
        return [warn(check, f"services run {told}, and this command is {own}", "use the command of that version")]
    return [ok(check, f"services run {own}, as this command")]


def text(version: Version) -> str:
    """`1.30`."""
    return ".".join(map(str, version))


MOST = timedelta(seconds=5)
"""The largest difference without a warning."""


class Reading(msgspec.Struct, frozen=True):
    """The time of a server's clock, between two times of this machine's."""

    server: datetime
    asked: datetime
    answered: datetime
    whole_seconds: bool = False
    """True if the server's time has no fractions of a second, as an HTTP date."""


def difference(check: str, whose: str, reading: Reading) -> Finding:
    """The difference of the clocks, within the uncertainty of the request's duration."""
    half = (reading.answered - reading.asked) / 2
    rest = timedelta(seconds=0.5) if reading.whole_seconds else timedelta()
    apart, unsure = reading.server + rest - (reading.asked + half), half + rest
    told = f"± {_seconds(unsure)} s"
    if abs(apart) - unsure <= MOST:
        return ok(check, f"the clock here and that of {whose} agree within {_seconds(abs(apart) + unsure)} s")
    direction = "ahead of" if apart > timedelta() else "behind"
    return warn(
        check,
        f"the clock of {whose} is {_seconds(abs(apart))} s ({told}) {direction} the one here",
        "have both keep time (chrony, systemd-timesyncd); no decision depends on it, but times that people read do",
    )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.1f}"


SOON = timedelta(days=14)
LAST_PART = 4
"""A certificate is reported in the last quarter of its validity: an automatic renewal comes earlier."""


def lasting(whose: str, life: Life, now: datetime) -> Finding:
    """The finding about a certificate's remaining time."""
    left = life.ends - now
    words = f"{whose} is good until {life.ends:%Y-%m-%d %H:%M} UTC"
    if left > min(SOON, (life.ends - life.begins) / LAST_PART):
        return ok("log.certificates", words)
    remedy = "renew it; servers and services read the files again by themselves"
    return warn("log.certificates", f"{words}, {left / timedelta(days=1):.1f} days", remedy)


BEHIND = 1_000
"""The largest lag without a warning, in events: a service reads as many in some hundredths of a second."""

BESIDE = ("history", "audit", "archiver")
"""The services on which no job depends, by their component."""

VERSION = "app.kubernetes.io/version"
HEALTH_PORT = "health"

Document = Mapping[str, Any]


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of an installation, with its reports."""

    name: str
    version: str = ""
    """The version in its label."""
    scope: str = ""
    """The namespace of its jobs; empty for the whole cluster."""
    port: int = 0
    """The port of its probes."""
    running: bool = True
    reports: tuple[Report, ...] = ()
    silence: str = ""
    """Why it has no reports."""


def pod(found: Document) -> Pod:
    """The pod from its object in the API server."""
    meta, spec = found.get("metadata") or {}, found.get("spec") or {}
    ports = [port for each in spec.get("containers") or () for port in each.get("ports") or ()]
    return Pod(
        name=meta.get("name", ""),
        version=(meta.get("labels") or {}).get(VERSION, ""),
        scope=environment(found).get(NAMESPACE, ""),
        port=next((port["containerPort"] for port in ports if port.get("name") == HEALTH_PORT), 0),
        running=(found.get("status") or {}).get("phase") == "Running" and not meta.get("deletionTimestamp"),
    )


def is_beside(found: Document) -> bool:
    """True for a pod of a service on which no job depends."""
    return ((found.get("metadata") or {}).get("labels") or {}).get(COMPONENT, "") in BESIDE


def version(pod: Pod) -> str:
    """The version in a pod's report, or else in its label."""
    return next((report.version for report in pod.reports if report.version), pod.version)


def owners(held: Iterable[Holding], now: datetime | None, *, scope: str) -> list[Finding]:
    """The findings about each installation that holds leases, or only about that with this `scope`."""
    by_scope: dict[str, dict[str, Holding]] = {}
    for holding in held:
        service, _, namespace = holding.key.partition(".")
        if service in SERVICES and (not scope or namespace == scope):
            by_scope.setdefault(namespace, {})[service] = holding
    found = []
    for namespace, holdings in sorted((by_scope or {scope: {}}).items()):
        where = f" (namespace {namespace})" if namespace else ""
        missing = [service for service in SERVICES if service not in holdings]
        told = ", ".join(
            f"{service} by {holdings[service].holder}{_age(holdings[service], now)}"
            for service in SERVICES
            if service in holdings
        )
        if missing:
            remedy = "start these services, or read why they are not ready: `kubectl logs`, docs/runbook.md"
            found.append(fail("services.owners", f"no replica holds the lease of {', '.join(missing)}{where}", remedy))
        if told:
            found.append(ok("services.owners", f"leases are held: {told}{where}"))
    if "" in by_scope and len(by_scope) > 1:
        others = names(sorted(filter(None, by_scope)))
        found.append(
            fail(
                "services.installations",
                f"one installation works in the whole cluster, and others in its namespaces {others}: they act on the "
                "same jobs twice",
                "run the one or the others; MUSTER_NAMESPACE restricts an installation to one namespace",
            )
        )
    return found


def readiness(pods: Sequence[Pod]) -> list[Finding]:
    """The findings about services that are not ready."""
    found = []
    for each in pods:
        if not each.running:
            found.append(warn("services.ready", f"{each.name} does not run", f"`kubectl describe pod {each.name}`"))
        for report in each.reports:
            if not report.ready:
                why = report.trouble or "it reads the log"
                found.append(fail("services.ready", f"{_who(each, report)} is not ready: {why}", "see docs/runbook.md"))
            elif report.held:
                words = f"{_who(each, report)} does not act on {len(report.held)} jobs ({names(sorted(report.held))})"
                found.append(fail("services.held", words, "the findings about jobs say why"))
    asked = [report for each in pods for report in each.reports]
    if asked and not found:
        return [ok("services.ready", f"{len(asked)} services in {len(pods)} pods are ready")]
    return found


def set_up(found: Iterable[Document], home: str) -> list[Finding]:
    """The finding if the newest pod of the set-up failed; `found` are all pods."""
    pods = [(pod.get("metadata") or {}, pod.get("status") or {}) for pod in found]
    of_setup = [(meta, status) for meta, status in pods if (meta.get("labels") or {}).get(COMPONENT) == "setup"]
    meta, status = max(of_setup, key=lambda each: each[0].get("creationTimestamp") or "", default=({}, {}))
    if status.get("phase") != "Failed":
        return []
    name = meta["name"]
    remedy = f"`kubectl -n {home} logs {name}` says why; docs/runbook.md, Set-up, says how to run the Job again"
    return [fail("services.setup", f"the set-up failed in {name}", remedy)]


def warnings(pods: Sequence[Pod]) -> list[Finding]:
    """The warnings in the services' reports, each once."""
    by_words: dict[str, list[str]] = {}
    for each in pods:
        for report in each.reports:
            for words in report.warnings:
                by_words.setdefault(words, []).append(_who(each, report))
    return [
        warn("services.warnings", f"{names(who)}: {words}", "see docs/runbook.md") for words, who in by_words.items()
    ]


def lag(pods: Sequence[Pod], ends: Mapping[str, int], home: str) -> list[Finding]:
    """The lag of each service behind the log's end, which differs for each scope."""
    check = "services.lag"
    if not pods:
        words = f"no pod of Muster runs in the namespace {home}, so the lag of its services is not known"
        return [unknown(check, words, "name the namespace of the installation with --installation-namespace")]
    found, behind = [], [0]
    if silent := [each for each in pods if each.running and not each.reports]:
        why = "; ".join(dict.fromkeys(each.silence for each in silent if each.silence))
        words = f"{names([each.name for each in silent])} gave no report of their position in the log: {why}"
        found.append(
            unknown(check, words, "grant the right to get pods/proxy there; the pod needs a port named `health`")
        )
    for each in pods:
        for report in each.reports:
            if each.scope not in ends or not report.position:
                continue
            late = ends[each.scope] - report.position
            behind.append(late)
            if late > BEHIND:
                remedy = "examine again after a minute; if the lag grows, read the service's log (`kubectl logs`)"
                found.append(warn(check, f"{_who(each, report)} is {late} events behind the log's end", remedy))
    if len(behind) > 1 and not any(finding.status == "warn" for finding in found):
        found.append(ok(check, f"no service is more than {max(behind)} events behind the log's end"))
    return found


def _who(pod: Pod, report: Report) -> str:
    return f"{report.service} in {pod.name}" if report.service else pod.name


def _age(holding: Holding, now: datetime | None) -> str:
    if now is None or holding.renewed is None:
        return ""
    return f" (renewed {max((now - holding.renewed).total_seconds(), 0.0):.1f} s ago)"
