"""Examines the cluster: its version and clock, definitions, pods, and the accounts with their rights and policies."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import msgspec

from muster.asking import open_cluster
from muster.crds import manifests
from muster.doctor import definitions, policies, rights, servers
from muster.doctor.findings import Choices, Finding, part, troubled, warn
from muster.doctor.log_examination import ANCHOR
from muster.doctor.rights import Account
from muster.doctor.servers import Pod
from muster.policies import BINDINGS, POLICIES
from shared.cluster import Resource
from shared.cluster.decoding import read_answer
from shared.cluster.examination import Review, Right
from shared.cluster.kinds import DEFINITIONS, LEASES
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Trouble, accepting
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.installation.plugins import chosen, installed
from shared.job.naming import JOB_UID
from shared.process.serving import reports_in
from shared.process.settings import Settings
from shared.release import this_release
from shared.runtime.heads import Anchor
from shared.untrusted import MALFORMED

REACHED = "versions.kubernetes"

MOST_PODS = 50
"""The most pods that are asked for a report."""

OURS = "app.kubernetes.io/name=muster"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


class _Version(msgspec.Struct):
    git: str = msgspec.field(default="", name="gitVersion")


class _List(msgspec.Struct):
    items: list[dict[str, Any]] = []


class ClusterExamination:
    """One examination of the cluster; `pods` and `annotations` are compared with the log."""

    def __init__(self, settings: Settings, choices: Choices) -> None:
        self.pods: list[Pod] = []
        self.annotations: list[Mapping[str, str]] = []
        """The annotations of the definitions, which have the claims of scopes."""
        self.anchors: list[Anchor] = []
        """Those of the status services' pods."""
        self.reached = False
        self._settings = settings
        self._choices = choices
        self._version = ""
        self._found: list[dict[str, Any]] = []
        """The objects of the services' pods."""
        self._of_jobs: list[str] = []
        """Some pods of jobs in the namespace of the services."""
        self._accounts: list[Account] = []

    async def findings(self) -> list[Finding]:
        return await part(REACHED, "the API server", self._all(), 3 * self._choices.timeout)

    async def _all(self) -> list[Finding]:
        async with open_cluster(self._settings) as cluster:
            seconds = self._choices.timeout
            found = await part(REACHED, cluster.url, self._of_server(cluster), seconds)
            if not self.reached:
                return found
            kinds = [*chosen(installed().kinds, self._settings.kinds)]
            looks = (
                part("definitions.kinds", cluster.url, self._of_definitions(cluster, kinds), seconds),
                part("services.pods", cluster.url, self._of_pods(cluster), seconds),
            )
            found += [finding for each in await asyncio.gather(*looks) for finding in each]
            found += await part(ANCHOR, cluster.url, self._of_anchors(cluster), seconds)
            found += await part("rights.accounts", cluster.url, self._of_rights(cluster, kinds), seconds)
            found += await part(rights.NAMESPACES_CHECK, cluster.url, self._of_namespaces(cluster), seconds)
            return found + await part(policies.CHECK, cluster.url, self._of_policies(cluster), seconds)

    async def _of_server(self, cluster: KubeCluster) -> list[Finding]:
        asked = datetime.now(UTC)
        answer = await cluster.ask("/version", what=f"ask {cluster.url} for its version")
        answered = datetime.now(UTC)
        version = read_answer(_Version, answer.body, "the API server's version").git
        self.reached = True
        self._version = version
        found = [servers.kubernetes(version)]
        if date := _date(answer.headers.get("Date", "")):
            reading = servers.Reading(date, asked, answered, whole_seconds=True)
            found.append(servers.difference("clock.kubernetes", "the API server", reading))
        return found

    async def _of_definitions(self, cluster: KubeCluster, kinds: list[Framework]) -> list[Finding]:
        wanted = definitions.wanted(kinds)
        names = [definitions.name(each) for each in wanted]
        try:
            documents = await asyncio.gather(*(self._object(cluster, DEFINITIONS, name) for name in names))
        except Refused as refusal:
            if refusal.reason != "Forbidden":
                raise
            known = await asyncio.gather(*(cluster.serves(each) for each in wanted))
            served = [each for each, serves in zip(wanted, known, strict=True) if serves]
            findings = definitions.by_discovery(kinds, served)
            _keep(kinds, lambda kind: kind.resource in served)
            return findings
        found = dict(zip(names, documents, strict=True))
        findings = definitions.compared(kinds, found, manifests(Kinds(kinds)))
        there = [document for document in documents if document is not None]
        self.annotations = [document["metadata"].get("annotations") or {} for document in there]
        _keep(kinds, lambda kind: found[definitions.name(kind.resource)] is not None)
        return findings

    async def _object(self, cluster: KubeCluster, resource: Resource[Any], name: str) -> dict[str, Any] | None:
        """A cluster-scoped object; None if there is none."""
        what = f"get the {resource.kind} {name}"
        with accepting("NotFound"):
            answer = await cluster.ask(f"/apis/{resource.api_version}/{resource.plural}/{name}", what=what)
            return read_answer(dict[str, Any], answer.body, what)
        return None

    async def _of_pods(self, cluster: KubeCluster) -> list[Finding]:
        found = await self._listed(cluster, "pods")
        beside = await self._listed(cluster, "pods", JOB_UID, limit="3")
        self._of_jobs = [pod["metadata"]["name"] for pod in beside]
        # Pods of the log and of the set-up have the same label, and are no services.
        self._found = [pod for pod in found if rights.services_of(pod)]
        every = [*self._found, *filter(servers.is_beside, found)]
        shown = [servers.pod(each) for each in every[:MOST_PODS]]
        self.pods = [*await asyncio.gather(*(self._reported(cluster, pod) for pod in shown))]
        running = ((pod.name, servers.version(pod)) for pod in self.pods)
        told = [*servers.readiness(self.pods), *servers.warnings(self.pods)]
        told += servers.set_up(found, self._choices.home)
        return [*told, *servers.releases(running, this_release())]

    async def _of_anchors(self, cluster: KubeCluster) -> list[Finding]:
        """Those that cannot be compared; the others are compared with the log."""
        found = []
        for place in sorted({rights.environment(pod).get("MUSTER_ANCHOR", "") for pod in self._found} - {""}):
            namespace, _, name = place.rpartition("/")
            held = await cluster.get(LEASES, namespace, name)
            if held is None:
                found.append(warn(ANCHOR, f"there is no Lease {place}", "`helm upgrade` with the same values"))
            elif (anchor := Anchor.read(held.metadata.annotations or {})) is not None:
                self.anchors.append(anchor)
        return found

    async def _reported(self, cluster: KubeCluster, pod: Pod) -> Pod:
        """The pod with its own report, read through the API server's proxy."""
        if not pod.running or not pod.port:
            return msgspec.structs.replace(pod, silence="it has no port named `health`")
        # `/healthz` answers 200 even if the pod is not ready, with the same report.
        path = f"/api/v1/namespaces/{self._choices.home}/pods/http:{pod.name}:{pod.port}/proxy/healthz"
        try:
            answer = await cluster.ask(path, what=f"ask {pod.name} how it is")
            reports = reports_in(answer.body)
        except Trouble as trouble:
            return msgspec.structs.replace(pod, silence=str(trouble))
        except MALFORMED as error:
            return msgspec.structs.replace(pod, silence=f"its answer is malformed: {error}")
        return msgspec.structs.replace(pod, reports=reports)

    async def _listed(
        self, cluster: KubeCluster, plural: str, selector: str = "", **query: str
    ) -> list[dict[str, Any]]:
        """By default the objects of this installation."""
        ours = OURS + (f",app.kubernetes.io/instance={self._choices.release}" if self._choices.release else "")
        home = self._choices.home
        path, what = f"/api/v1/namespaces/{quote(home, safe='')}/{plural}", f"list the {plural} in {home}"
        answer = await cluster.ask(path, what=what, query={"labelSelector": selector or ours, **query})
        items = read_answer(_List, answer.body, what).items
        if not items and plural == "serviceaccounts" and not self._choices.release:
            # The accounts of `muster rbac` have no labels.
            items = read_answer(_List, (await cluster.ask(path, what=what)).body, what).items
        return items

    async def _of_rights(self, cluster: KubeCluster, kinds: list[Framework]) -> list[Finding]:
        """The findings about each account; `kinds` are the installed ones."""
        me = await self._myself(cluster)
        scope, taking_over = self._settings.namespace, self._settings.take_over
        own = rights.own(me, scope=scope, taking_over=taking_over)
        try:
            listed = await self._listed(cluster, "serviceaccounts")
        except Refused as refusal:
            if own is None and not self._found:
                return [troubled("rights.accounts", refusal)]
            listed = []
        accounts = rights.accounts(
            listed, self._found, home=self._choices.home, scope=scope, taking_over=taking_over
        ) or ([own] if own else [])
        if not accounts:
            return [rights.no_accounts(self._choices.home)]
        self._accounts = accounts
        answers = await asyncio.gather(*(self._granted(cluster, account, me, kinds) for account in accounts))
        return rights.among_tenants(accounts, self._of_jobs) + [
            finding
            for account, granted in zip(accounts, answers, strict=True)
            for finding in rights.findings(account, kinds, granted)
        ]

    async def _of_namespaces(self, cluster: KubeCluster) -> list[Finding]:
        selector = next((one.powers.namespaces for one in self._accounts if one.powers.namespaces), ())
        if not selector:
            return []
        what = "list the namespaces where jobs may begin"
        try:
            answer = await cluster.ask("/api/v1/namespaces", what=what, query={"labelSelector": ",".join(selector)})
        except Refused as refusal:
            return [rights.of_namespaces(selector, None, str(refusal))]
        items = read_answer(_List, answer.body, what).items
        return [rights.of_namespaces(selector, [each["metadata"]["name"] for each in items])]

    async def _of_policies(self, cluster: KubeCluster) -> list[Finding]:
        if not self._accounts:
            return []
        if not await cluster.serves(POLICIES):
            return [policies.not_served(self._version)]
        names = list(dict.fromkeys(policies.name(account) for account in self._accounts))
        try:
            made, bound = [
                await asyncio.gather(*(self._object(cluster, resource, name) for name in names))
                for resource in (POLICIES, BINDINGS)
            ]
        except Refused as refusal:
            if refusal.reason != "Forbidden":
                raise
            return [policies.forbidden(str(refusal))]
        found = dict(zip(names, zip(made, bound, strict=True), strict=True))
        return policies.findings(self._accounts, installed().kinds, found)

    async def _myself(self, cluster: KubeCluster) -> str:
        try:
            return await cluster.user()
        except Refused:
            return ""

    async def _granted(
        self, cluster: KubeCluster, account: Account, me: str, kinds: Iterable[Framework]
    ) -> dict[Right, bool] | None:
        """The account's rights, by the first permitted review: its own, one about it, or one as it (impersonation)."""
        wanted = rights.of_account(account, kinds)
        ways = [rights.itself] if me == account.user else [rights.of_it, rights.in_its_name]
        for way in ways:
            with accepting("Forbidden"):
                first = await self._asked(cluster, way(account, wanted[0]))
                rest = await asyncio.gather(*(self._asked(cluster, way(account, right)) for right in wanted[1:]))
                return dict(zip(wanted, (first, *rest), strict=True))
        return None

    async def _asked(self, cluster: KubeCluster, question: rights.Question) -> bool:
        answer = await cluster.ask(
            f"{AUTHORIZATION}/{question.kind.lower()}s",
            what=f"ask what {question.who} may do",
            review={"apiVersion": "authorization.k8s.io/v1", "kind": question.kind, "spec": question.spec},
            headers=question.headers,
        )
        return read_answer(Review, answer.body, "a review of rights").status.allowed


def _keep(kinds: list[Framework], served: Callable[[Framework], bool]) -> None:
    kinds[:] = [kind for kind in kinds if served(kind)]


def _date(header: str) -> datetime | None:
    try:
        return parsedate_to_datetime(header) if header else None
    except ValueError:
        return None
