"""The real control plane on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

    async with ControlPlane(folder, users=["watcher"]) as plane:
        os.environ["KUBECONFIG"] = str(plane.kubeconfig("watcher"))

It has the interface of the embedded cluster (`cluster.py`), and uses the same node agent.
RBAC is on: users are service accounts in the namespace `muster`, with the rights of their role bindings.
The programs come from `devcluster.binaries`.
"""

import asyncio
import ipaddress
import json
import signal
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from devcluster import binaries
from devcluster.certificates import FRONT_PROXY, Credentials, server_context
from devcluster.child import Child
from devcluster.client import AbruptResponse
from devcluster.cluster import ADMIN, HOST, START_TIMEOUT, ApiServer, DevelopmentCluster, ServerProcess, free_port

SERVICES_RANGE = "10.96.0.0/16"

More = Mapping[str, Sequence[str]]
"""More arguments by program, such as `{"kube-scheduler": ["--kube-api-qps=500"]}`; the last one of a name wins."""


class Program(ServerProcess):
    """One of the programs of `devcluster.binaries`."""

    orphaned = signal.SIGKILL
    """Not SIGTERM: a graceful end would wait a minute for clients that are gone."""

    def __init__(self, program: str, data: Path, arguments: Sequence[str], more: More) -> None:
        super().__init__(program, [], data / f"{program}.log", {})
        self._arguments = [*arguments, *more.get(program, ())]

    async def run(self) -> None:
        # Looked up only now, so that the start fails if the program is missing, and not the construction.
        self.command = [str(binaries.find(self.name)), *self._arguments]
        self.start()


class Etcd(Program):
    """The store.  A copy of its folder `data`, made while it is stopped, is a backup."""

    def __init__(self, data: Path, more: More) -> None:
        self.data = data / "etcd"
        self.url, peers = (f"http://{HOST}:{free_port()}" for _ in range(2))
        arguments = [f"--data-dir={self.data}", "--name=store", "--log-level=warn", "--unsafe-no-fsync"]
        arguments += [f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}"]
        arguments += [f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"]
        super().__init__("etcd", data, [*arguments, f"--initial-cluster=store={peers}"], more)

    async def run(self) -> None:
        await super().run()
        async with aiohttp.ClientSession() as session:
            await self.until(lambda: _says_ok(session, f"{self.url}/health"), START_TIMEOUT)


class KubeApiServer(Program, ApiServer):
    """The API server.  After a restart it serves the same store on the same port."""

    def __init__(
        self,
        data: Path,
        etcd: Etcd,
        credentials: Credentials,
        tokens: Path,
        audit: Path | None,
        more: More,
        *,
        accounts: bool,
        services: str,
        tunnel: Path | None,
    ) -> None:
        """`tunnel` is the socket through which the server reaches kubelets and pods if it has no route to them."""
        self.data = data / "apiserver"
        port = free_port()
        self.url = f"https://{HOST}:{port}"
        arguments = [f"--etcd-servers={etcd.url}", f"--bind-address={HOST}", f"--secure-port={port}"]
        arguments += [f"--tls-cert-file={self.data}/server.crt", f"--tls-private-key-file={self.data}/server.key"]
        arguments += [f"--cert-dir={self.data}", f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC"]
        arguments += [
            f"--service-account-key-file={credentials.accounts_key}",
            f"--service-account-signing-key-file={credentials.accounts_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            f"--service-cluster-ip-range={services}",
            "--endpoint-reconciler-type=none",
            f"--kubelet-client-certificate={credentials.kubelet_client}",
            f"--kubelet-client-key={credentials.kubelet_client_key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--requestheader-client-ca-file={credentials.front_proxy}",
            f"--requestheader-allowed-names={FRONT_PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={credentials.front_proxy}",
            f"--proxy-client-key-file={credentials.front_proxy_key}",
        ]
        if not accounts:
            # Pods of training jobs need no token.
            arguments.append("--disable-admission-plugins=ServiceAccount")
        if audit:
            policy = Path(__file__).with_name("audit-policy.yaml")
            arguments += [f"--audit-log-path={audit}", f"--audit-policy-file={policy}", "--audit-log-maxsize=1000"]
        self._tunnel = tunnel
        if tunnel:
            arguments.append(f"--egress-selector-config-file={self.data}/egress.json")
        self._tokens = tokens
        self.followers: tuple[Program, ...] = ()
        """Programs that are restarted with the server, as in a cluster where they lose their leases with it.

        Otherwise client-go's watches wait up to half a minute after several restarts of the server within two minutes,
        and no pod is scheduled meanwhile.
        """
        super().__init__("kube-apiserver", data, arguments, more)

    async def restart(self) -> None:
        await super().restart()
        await asyncio.gather(*(follower.restart() for follower in self.followers))

    async def run(self) -> None:
        if self._tunnel:
            (self.data / "egress.json").write_text(json.dumps(_egress(self._tunnel)))
        await super().run()
        token = self._tokens.read_text().partition(",")[0]
        trust = ssl.create_default_context(cafile=str(self.data / "ca.crt"))
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(ssl=trust),
            response_class=AbruptResponse,
        ) as session:
            await self.until(lambda: _says_ok(session, f"{self.url}/readyz"), START_TIMEOUT)


def _egress(tunnel: Path) -> dict[str, Any]:
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(tunnel)}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


async def _says_ok(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=2.0)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def client(program: str, data: Path, kubeconfig: Path, more: More, *arguments: str) -> Program:
    """A program that works through the API server alone."""
    return Program(program, data, [f"--kubeconfig={kubeconfig}", *ALONE, *arguments], more)


ALONE = ("--leader-elect=false", "--secure-port=0")
SCHEDULER_USER = "system:kube-scheduler"


class ControlPlane(DevelopmentCluster):
    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        nodes: int = 1,
        *,
        audit: Path | None = None,
        more: More | None = None,
        accounts: bool = False,
        services: str = SERVICES_RANGE,
    ) -> None:
        """`audit` is a file with one line for each call; `more` has more arguments of the programs.
        `services` is the network of the Services' addresses; the first one is the API server's.

        With `accounts`, pods get the token of their service account, as in other clusters: no pod can then be created
        in a new namespace before its default account exists, so it is off by default.  The API server then also reaches
        the pods of the first node agent, as for `pods/proxy`.

        Entering raises `MissingProgram` if a program is neither found nor built.
        """
        self._credentials = Credentials(data.absolute())
        # The API server reaches the pods of one node agent through it; it has a route to those of a real kubelet.
        self.tunnel = data.absolute() / "tunnel" if accounts and nodes == 1 else None
        super().__init__(data, [*users, SCHEDULER_USER], images or {}, nodes)
        given = more or {}
        log = audit.absolute() if audit else None
        self.address = str(next(ipaddress.ip_network(services).hosts()))
        """The API server's address for pods; the pods' network has to route it to the server."""
        self.etcd = Etcd(self.data, given)
        self.apiserver: KubeApiServer = KubeApiServer(
            self.data,
            self.etcd,
            self._credentials,
            self.tokens,
            log,
            given,
            accounts=accounts,
            services=services,
            tunnel=self.tunnel,
        )
        key = f"--service-account-private-key-file={self._credentials.accounts_key}"
        # Of every namespace, for pods that call the API server.
        trusted = [f"--root-ca-file={self.authority}"] if accounts else []
        # All controllers share the administrator's kubeconfig; other clusters give each one its own account.
        administrator = self.kubeconfig(ADMIN)
        self.controllers = client("kube-controller-manager", self.data, administrator, given, key, *trusted)
        self.scheduler = client("kube-scheduler", self.data, self.kubeconfig(SCHEDULER_USER), given)
        self.apiserver.followers = (self.controllers, self.scheduler)

    @property
    def programs(self) -> Sequence[Child]:
        return [self.etcd, self.apiserver, self.controllers, self.scheduler, *self.nodes]

    async def _start(self) -> None:
        self._credentials.make()
        self.apiserver.data.mkdir(exist_ok=True)
        # Called for the files that it makes: kube-apiserver uses them.
        server_context(self.apiserver.data, self.address)
        await self.etcd.run()
        await self.apiserver.run()
        self._write_kubeconfigs()
        await asyncio.gather(self.controllers.run(), self.scheduler.run())

    async def _stop(self) -> None:
        # etcd stops last: the others do not end in time without it.
        await asyncio.gather(self.controllers.stop(), self.scheduler.stop())
        await self.apiserver.stop()
        await self.etcd.stop()

    def _node_options(self) -> tuple[Sequence[str], Mapping[str, str]]:
        tunnel = ["--tunnel", str(self.tunnel)] if self.tunnel else []
        return ["--client-ca", str(self._credentials.kubelet_client), *tunnel], {}
