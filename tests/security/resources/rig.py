"""An installation to attack: every process with its port, another tenant, and the judge.

Quiet first, then under attack: what each process held at the most, whether it was ready, how long the other tenant's
job waited for its first pod, and another viewer for an answer.
"""

import asyncio
import json
import math
import secrets
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import yaml

from devcluster.certificates import make_server
from devcluster.child import Child
from devcluster.cluster import Devcluster, DevelopmentCluster
from muster import permissions
from muster.page.viewers import PAGE
from muster.stack import SERVICES, Stack
from shared.errors import Trouble
from shared.eventlog import api
from shared.eventlog.account import ADMIN, AUDIT, HISTORY, LOG_API, STREAM, Copy
from shared.eventlog.server import CopiesServer
from shared.eventlog.setup import set_up
from shared.frameworks.scale_requests import GROUP
from shared.ports import HOST, free_port
from tests.bench.real.manifests import collection, training_job
from tests.bench.real.processes import begin_anew, memory
from tests.history.conftest import HOME, NAME, Site, the_api
from tests.kit.nats import a_decision, connected
from tests.security.resources.attacks import APIS, JOB, OURS, STARTED, THEIRS, Target
from tests.security.resources.attacks import HISTORY as THEIR_HISTORY

VIEWERS = ("viewer-a", "system:viewer-b")
"""The accounts of a namespace share what a viewer may take: the other one is of none."""
NATS = "nats"
_ALL = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "viewers"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "User", "name": name} for name in VIEWERS],
}
"""The viewers may view everything; the walls between them are no matter of rights."""
QUESTION = f"{THEIR_HISTORY.replace(f'/{THEIRS}/', f'/{OURS}/')}/why"
COPY_BYTES = 50_000_000
MOST_OF_COPIES = 1024.0
"""MiB: the limit of the copies' server in the chart, at which a kubelet's kernel kills it."""
JOBS, EVENTS, EVENT_BYTES = 1_000, 2_000, 2_000
"""What the attacker's namespace has in the log from the start, for those who ask for everything."""

MOST_GROWTH, MOST_MEBIBYTES, MOST_GROWTH_OF_NATS, MOST_DELAY = 1.5, 512.0, 2.0, 2.0
PROBES_IN_A_ROW = 3
"""A kubelet's `failureThreshold`: so many probes without a 200, and a pod is not ready."""
PROBE_SECONDS = 2.0
"""A kubelet's `timeoutSeconds` in the chart."""
START_SECONDS = 60.0
PATIENCE_SECONDS = 10.0
"""What another tenant or viewer waits for at the most; more counts as never."""


class Figures(NamedTuple):
    """What was measured in one stretch of time."""

    peaks: dict[str, float]
    """MiB of each process."""
    unready: dict[str, int]
    """The most probes in a row without a 200, by service."""
    job: float
    """Seconds until the other tenant's slowest job had a pod, from when a bare watch told of it: what the API server
    takes is no wall of ours."""
    question: float
    """Seconds until the page and then the history service answered the other viewer's slowest question, the latter on
    a connection of its own from the front proxy:
    the embedded API server is a single process, which attackers of it keep busy, and no wall of ours."""
    append: float
    """Seconds of the slowest question about the log and append to it, one after the other."""

    def worst(self, other: "Figures") -> "Figures":
        return Figures(
            {name: max(peak, other.peaks[name]) for name, peak in self.peaks.items()},
            {name: max(number, other.unready[name]) for name, number in self.unready.items()},
            max(self.job, other.job),
            max(self.question, other.question),
            max(self.append, other.append),
        )


def faults(quiet: Figures, attacked: Figures) -> list[str]:
    """What the attack achieved, a sentence each."""
    assert math.isfinite(quiet.job + quiet.question), "others got nothing when it was quiet"
    found = []
    for name, peak in attacked.peaks.items():
        factor = MOST_GROWTH_OF_NATS if name == NATS else MOST_GROWTH
        most = quiet.peaks[name] * factor
        if peak > (most if name == NATS else min(most, MOST_MEBIBYTES)):
            found.append(f"{name} held {peak:.0f} MiB, and {quiet.peaks[name]:.0f} MiB when it was quiet")
    found += [
        f"{number} probes in a row found {name} not ready"
        for name, number in attacked.unready.items()
        if number >= PROBES_IN_A_ROW
    ]
    found += [
        f"another {who} waited {was:.1f} s for {what}, and {alone:.1f} s alone"
        for who, what, was, alone in (
            ("tenant's job", "its first pod", attacked.job, quiet.job),
            ("viewer", "an answer", attacked.question, quiet.question),
        )
        if was > alone + MOST_DELAY
    ]
    return found


class Rig(Stack):
    """`async with Rig(folder) as rig`: six services, the page, the log's server, and an API server, each a process."""

    cluster: DevelopmentCluster

    def __init__(self, data: Path, kind: Callable[..., DevelopmentCluster] = Devcluster) -> None:
        """On a cluster of that kind: the embedded one has a single process, which tenants who write keep busy."""

        def cluster(
            folder: Path, users: Sequence[str], images: Mapping[str, Path], audit: Path | None
        ) -> DevelopmentCluster:
            return kind(folder, (*users, HISTORY, *VIEWERS), images, nodes=0, audit=audit)

        self.ports = {name: free_port() for name in (*SERVICES, HISTORY, AUDIT, PAGE, *APIS)}
        self._certificates, url = data / "certificates", f"https://localhost:{self.ports['progress-api']}"
        of_progress = {"URL": url, "PORT": str(self.ports["progress-api"]), "CA": str(self._certificates / "ca.crt")}
        of_progress |= self._certificate()
        super().__init__(data, cluster, settings={f"MUSTER_PROGRESS_{name}": v for name, v in of_progress.items()})
        self.copy = Copy.of(THEIRS)
        self.copies = CopiesServer(self.nats, users={self.copy.user: secrets.token_hex(8)})
        self._jobs = count()
        self._appended = 0

    async def _start_services(self) -> None:
        password = self.nats.users[ADMIN]
        await set_up(self.nats.url, user=ADMIN, password=password, subscribers={self.copy: COPY_BYTES})
        async with connected(self.nats, "scheduler") as log:
            body = b'{"x":"%s"}' % (b"x" * EVENT_BYTES)
            last = {f"job-{number}": 0 for number in range(JOBS)}
            for _ in range(0, EVENTS, len(last)):
                entries = (
                    log.append(a_decision(THEIRS, sequence, job=job, body=body), expect=sequence)
                    for job, sequence in last.items()
                )
                last = dict(zip(last, await asyncio.gather(*entries), strict=True))
        self._certificates.mkdir()
        make_server(self._certificates, ["localhost"])
        await super()._start_services()
        await self._start_apis()
        self._admin = await self._stack.enter_async_context(self.cluster.session())
        self._viewer = await self._stack.enter_async_context(self.cluster.session(VIEWERS[1]))
        self._probes = await self._stack.enter_async_context(aiohttp.ClientSession())
        self._log = await self._stack.enter_async_context(connected(self.nats, "scheduler"))
        for name in (THEIRS, OURS):
            await self._post("/api/v1/namespaces", {"metadata": {"name": name}})
            await self._post(collection("trainingjobs", name, GROUP), training_job(JOB, name, 2))
        await self._well()
        self.target = self.data / "target.json"
        self.target.write_bytes(msgspec.json.encode(self._told()))

    def _start_service(self, module: str, called: str, environment: Mapping[str, str]) -> None:
        super()._start_service(module, called, {**environment, "MUSTER_HEALTH_PORT": str(self.ports[called])})

    async def _start_apis(self) -> None:
        site = Site(self.cluster, self.nats, self.data)
        site.port = self.ports["history-api"]
        self._start_service(f"services.{HISTORY}", HISTORY, site.environment())
        token = self._certificates / "token"
        token.write_text(secrets.token_hex(16))
        audit = {
            "NATS_URL": self.nats.url,
            "NATS_USER": AUDIT,
            "NATS_PASSWORD": self.nats.users[AUDIT],
            "MUSTER_AUDIT_PORT": str(self.ports["audit-api"]),
            "MUSTER_AUDIT_TOKEN_FILE": str(token),
            **{f"MUSTER_AUDIT_{name}": file for name, file in self._certificate().items()},
        }
        self._start_service(f"services.{AUDIT}", AUDIT, audit)
        # Each viewer has a token: the page has no credentials.
        place = yaml.safe_load(self.cluster.kubeconfig("admin").read_text())
        place["users"][0]["user"] = {}
        (kubeconfig := self.data / "kubeconfig-page").write_text(yaml.safe_dump(place))
        page = {
            "KUBECONFIG": str(kubeconfig),
            "MUSTER_PAGE_PORT": str(self.ports["page-api"]),
            **{f"MUSTER_PAGE_{name}": file for name, file in self._certificate().items()},
        }
        self._start_service("muster.page.viewers", PAGE, page)
        await site.apply(*permissions.history_rights(HOME), _ALL, *the_api(site.authority, site.port))
        self._front_proxy = ssl.create_default_context(cadata=site.authority.decode())
        [certificate] = self.data.glob("cluster/**/front-proxy.crt")
        self._front_proxy.load_cert_chain(certificate, certificate.with_suffix(".key"))

    def _certificate(self) -> dict[str, str]:
        return {name: str(self._certificates / f"server.{end}") for name, end in (("CERT", "crt"), ("KEY", "key"))}

    def _told(self) -> Target:
        return Target(
            ports={**self.ports, NATS: self.copies.port, "api": int(self.cluster.url.rpartition(":")[2])},
            tokens={name: self.cluster._tokens[name] for name in ("admin", *VIEWERS)},
            subscriber=self.copy.user,
            password=self.copies.users[self.copy.user],
            reset=self.copy.reset.replace("$JS.API", LOG_API),
        )

    async def _post(self, path: str, document: Mapping[str, Any]) -> None:
        async with self._admin.post(path, json=document) as answer:
            assert answer.status in {201, 409}, await answer.text()

    # what is measured

    @property
    def _pids(self) -> dict[str, int]:
        return {NATS: self.nats.pid, **{name: service.pid for name, service in self.services.items()}}

    async def measure(self, seconds: float) -> Figures:
        """What happens in so many seconds, and until the last job of these has a pod."""
        for pid in self._pids.values():
            begin_anew(pid)
        until = time.monotonic() + seconds
        slowest, unready, _ = await asyncio.gather(
            asyncio.gather(*(self._slowest(until, once) for once in (self._run_job, self._ask, self._append))),
            asyncio.gather(*(self._unready(until, name) for name in self.services)),
            self._limit_copies(until),
        )
        peaks = {name: memory(pid).peak for name, pid in self._pids.items()}
        return Figures(peaks, dict(zip(self.services, unready, strict=True)), *slowest)

    async def _slowest(self, until: float, once: Callable[[], Any]) -> float:
        """The most seconds that it took, done at least once, without those that it returns."""
        slowest = 0.0
        while True:
            began = time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    aside = await once() or 0.0
            except (TimeoutError, aiohttp.ClientError, Trouble):
                return math.inf
            slowest = max(slowest, time.perf_counter() - began - aside)
            if time.monotonic() >= until:
                return slowest
            await asyncio.sleep(0.5)

    async def _run_job(self) -> float:
        """Seconds until a bare watch told of the job: the API server may be behind with everybody's events."""
        name, jobs = f"ours-{next(self._jobs)}", collection("trainingjobs", OURS, GROUP)
        query = {"watch": "1", "resourceVersion": "0", "fieldSelector": f"metadata.name={name}"}
        async with self._admin.get(jobs, params=query) as watch:
            began = time.perf_counter()
            await self._post(jobs, training_job(name, OURS, 1))
            await watch.content.readline()
        seen = time.perf_counter() - began
        # A list waits for the API server's cache, which one who writes without end leaves behind.
        while not await self._is_there(collection("pods", OURS), f"{name}-worker-0"):
            await asyncio.sleep(0.05)
        async with self._admin.delete(f"{jobs}/{name}"):
            return seen

    async def _is_there(self, path: str, name: str) -> bool:
        async with self._admin.get(f"{path}/{name}") as answer:
            return answer.status == 200

    async def _ask(self) -> float:
        began = time.perf_counter()
        async with self._viewer.get("/version") as answer:
            await answer.read()
        own = time.perf_counter() - began
        while not await self._answered():
            await asyncio.sleep(0.1)
        # The review of the viewer's rights waits in the API server as long as that one did.
        return 2 * own

    async def _append(self) -> None:
        await api.stream_info(self._log.connection, STREAM)
        entry = a_decision(THEIRS, self._appended, job="appended")
        self._appended = await self._log.append(entry, expect=self._appended)

    async def _answered(self) -> bool:
        page = f"https://localhost:{self.ports['page-api']}/-/api/jobs/{OURS}/trainingjob/{JOB}"
        token = {"Authorization": f"Bearer {self.cluster._tokens[VIEWERS[1]]}"}
        async with self._probes.get(page, ssl=False, headers=token) as answer:
            await answer.read()
            if answer.status != 200:
                return False
        url = f"https://localhost:{self.ports['history-api']}{QUESTION}"
        who = {"X-Remote-User": VIEWERS[1], "Connection": "close"}
        async with self._probes.get(
            url, ssl=self._front_proxy, server_hostname=f"{NAME}.{HOME}.svc", headers=who
        ) as answer:
            await answer.read()
            return bool(answer.status == 200)

    async def _unready(self, until: float, name: str) -> int:
        most = now = 0
        while time.monotonic() < until:
            now = 0 if await self._is_ready(name) else now + 1
            most = max(most, now)
            await asyncio.sleep(1.0)
        return most

    async def _limit_copies(self, until: float) -> None:
        while time.monotonic() < until:
            if memory(self.copies.pid).resident > MOST_OF_COPIES:
                self.copies.kill()
                await self.copies.start()
            await asyncio.sleep(0.1)

    async def _is_ready(self, name: str) -> bool:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with (
                asyncio.timeout(PROBE_SECONDS),
                self._probes.get(f"http://{HOST}:{self.ports[name]}/readyz", headers={"Connection": "close"}) as said,
            ):
                return said.status == 200
        return False

    # what is attacked

    async def attacked(self, attacks: Sequence[tuple[str, int]], seconds: float) -> Figures:
        """While all of these run at once: of each the family and its number there."""
        async with AsyncExitStack() as stack:
            attackers = [await stack.enter_async_context(self._attacker(*attack)) for attack in attacks]
            for attacker in attackers:
                await attacker.line(STARTED, START_SECONDS)
            figures = await self.measure(seconds)
            for attacker in attackers:
                assert attacker.running, attacker.error("ended")
        return figures

    @asynccontextmanager
    async def _attacker(self, family: str, number: int) -> AsyncIterator[Child]:
        command = [sys.executable, "-m", "tests.security.resources.attacks", family, str(number), str(self.target)]
        attacker = Child(f"the attacker {family} {number}", command, self.data / f"{family}-{number}.log", {})
        attacker.start()
        try:
            yield attacker
        finally:
            attacker.kill()

    async def recover(self, quiet: Figures) -> None:
        """Start anew what still holds more than when it was quiet, or is not ready, for the next attack."""
        for name, service in self.services.items():
            if memory(service.pid).resident > quiet.peaks[name] * 1.2 or not await self._is_ready(name):
                await service.restart()
        if memory(self.nats.pid).resident > quiet.peaks[NATS] * 1.2:
            await self.nats.restart()
        await self._well()

    async def _well(self) -> None:
        """Wait until each service is ready, and the history API answers."""
        deadline = asyncio.get_running_loop().time() + 120
        while True:
            late = [service for name, service in self.services.items() if not await self._is_ready(name)]
            if not late and await self._answered():
                return
            if asyncio.get_running_loop().time() > deadline:
                raise (late[0] if late else self.services["history"]).error("is not ready, or does not answer")
            await asyncio.sleep(0.2)


def told(name: str, seconds: float, quiet: Figures, figures: Figures) -> str:
    """One line for people."""
    worst = max(figures.peaks, key=lambda each: figures.peaks[each] / quiet.peaks[each])
    said = {
        "attack": name,
        "seconds": seconds,
        "most grown": f"{worst} {quiet.peaks[worst]:.0f} -> {figures.peaks[worst]:.0f} MiB",
        "unready": {name: number for name, number in figures.unready.items() if number},
        "job": round(figures.job, 2),
        "question": round(figures.question, 2),
        "append": round(figures.append, 2),
    }
    return json.dumps(said, ensure_ascii=False)
