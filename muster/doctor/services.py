"""Findings about services: the holders of their leases, their readiness, and their lag behind the log.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from muster.doctor.findings import Finding, fail, names, ok, unknown, warn
from muster.doctor.rights import COMPONENT, NAMESPACE, SERVICES, environment
from shared.eventlog.inspection import Holding
from shared.process.serving import Report

BEHIND = 1_000
"""The largest lag without a warning, in events: a service reads as many in some hundredths of a second."""

PASSING_SECONDS = 1.5
"""Seconds before a free lease is read again: a standby takes a lease within two seconds."""

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
