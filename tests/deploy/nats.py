"""The NATS servers of the chart on this machine: with the configuration and the environment that their pods would have.

Nothing else of them is changed than where they are, addresses and folders, and that they look every second instead of
every minute whether their certificates were renewed.
"""

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from devcluster.child import Child
from devcluster.node.environment import expand
from shared.eventlog.server import _program
from shared.eventlog.tls import Tls
from shared.ports import free_port
from tests.deploy.rendering import documents, render
from tests.kit.commands import run
from tests.kit.nats import until

NAME = "muster-nats"


class Node:
    """One server, as the pod of its number would run it."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"{NAME}-{number}"
        self.folder = folder / self.name
        self.tls = self.folder / "tls"
        self.client, self.route, self.monitor, self.leaf = free_port(), free_port(), free_port(), free_port()
        self.child: Child

    async def is_ready(self) -> bool:
        """What the startup probe hears."""
        assert self.child.running, self.child.log.read_text()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.monitoring}/healthz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def certify(self, tls: Tls) -> None:
        """What its Secret is from now on."""
        for path, name in ((tls.ca, "ca.crt"), (tls.certificate, "tls.crt"), (tls.key, "tls.key")):
            assert path is not None
            shutil.copy(path, self.tls / name)

    @property
    def monitoring(self) -> str:
        return f"http://127.0.0.1:{self.monitor}"


def files(secret: Mapping[str, Any], folder: Path) -> Tls:
    """The Secret's certificate as a kubelet mounts it."""
    folder.mkdir(parents=True)
    for name, content in secret["data"].items():
        (folder / name).write_bytes(base64.b64decode(content))
    return Tls(ca=folder / "ca.crt", certificate=folder / "tls.crt", key=folder / "tls.key")


class Nats:
    """What `helm template` with `options` says of NATS, with the Secret's passwords `users`.

    The certificate is the one that the chart makes, or `tls`.
    """

    def __init__(self, folder: Path, users: Mapping[str, str], *options: str, tls: Tls | None = None) -> None:
        self.users = users
        found = documents(
            render("--set", "nats.auth.existingSecret=mine,history.enabled=true,audit.enabled=true", *options)
        )
        self.objects = {(each["kind"], each["metadata"]["name"]): each for each in found}
        made = self.objects.get(("Secret", f"{NAME}-tls"))
        self.tls = tls or (made and files(made, folder / "made"))
        stateful: dict[str, Any] = self.objects["StatefulSet", NAME]["spec"]
        pod = stateful["template"]["spec"]
        (self.container,) = pod["containers"]
        self.first: list[dict[str, Any]] = pod.get("initContainers", [])
        self.nodes = [Node(number, folder) for number in range(stateful["replicas"])]
        for node in self.nodes:
            self._write(node)

    @property
    def trusted(self) -> Tls | None:
        """What a client needs, if anything."""
        return self.tls and Tls(ca=self.tls.ca)

    @property
    def url(self) -> str:
        scheme = "tls" if self.tls else "nats"
        return ",".join(f"{scheme}://127.0.0.1:{node.client}" for node in self.nodes)

    def environment(self, node: Node) -> dict[str, str]:
        """As a kubelet makes it: in order, from the pod and the Secret, with `$(NAME)` put in."""
        known: dict[str, str] = {}
        for entry in self.container["env"]:
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                value = node.name
            elif "secretKeyRef" in source:
                value = self.users[source["secretKeyRef"]["key"]]
            else:
                value = expand(entry["value"], known)
            known[entry["name"]] = value
        for peer in self.nodes:
            for name in [name for name in known if name.startswith("ROUTE_")]:
                known[name] = known[name].replace(f"{peer.name}.{NAME}.muster.svc:6222", f"127.0.0.1:{peer.route}")
        return known

    def _write(self, node: Node) -> None:
        node.tls.mkdir(parents=True, exist_ok=True)
        text: str = self.objects["ConfigMap", NAME]["data"]["nats.conf"]
        paths = {
            "0.0.0.0:4222": f"127.0.0.1:{node.client}",
            "0.0.0.0:6222": f"127.0.0.1:{node.route}",
            "0.0.0.0:8222": f"127.0.0.1:{node.monitor}",
            "0.0.0.0:7422": f"127.0.0.1:{node.leaf}",
            '"/data"': f'"{node.folder}/data"',
            "/var/run/nats": str(node.folder),
            "/etc/nats/tls": str(node.tls),
        }
        for there, here in paths.items():
            text = text.replace(there, here)
        config = node.folder / "nats.conf"
        config.write_text(text)
        if self.tls is not None:
            node.certify(self.tls)
        paths |= {"nats-server": _program(), "/etc/nats/nats.conf": str(config), "sleep 60": "sleep 1"}
        environment = self.environment(node)
        command = [expand(str(word), environment) for word in self.container["command"]]
        for there, here in paths.items():
            command = [word.replace(there, here) for word in command]
        node.child = Child(node.name, command, node.folder / "log", environment)

    async def refusal(self, node: Node) -> str:
        """What keeps this pod's server from starting; nothing when it may."""
        for container in self.first:
            words = [expand(word, {}).replace("/data", str(node.folder / "data")) for word in container["command"]]
            ended = await run(*words)
            if ended.code:
                return ended.complaint
        return ""

    async def drain(self, node: Node) -> None:
        """End it as a kubelet does: what precedes the SIGTERM, then that."""
        _, *words = self.container["lifecycle"]["preStop"]["exec"]["command"]
        here = [word.replace("/var/run/nats", str(node.folder)) for word in words]
        before = await asyncio.create_subprocess_exec(_program(), *here)
        assert await before.wait() == 0


@asynccontextmanager
async def running(nats: Nats) -> AsyncIterator[Nats]:
    try:
        for node in nats.nodes:
            assert not await nats.refusal(node)
            node.child.start()
        for node in nats.nodes:
            await until(node.is_ready)
        yield nats
    finally:
        for node in nats.nodes:
            if node.child.running:
                await node.child.stop()


@asynccontextmanager
async def copies_of(nats: Nats, folder: Path, readers: Mapping[str, str]) -> AsyncIterator[str]:
    """The server of the copies beside it, with the subscribers' passwords; its address."""
    (container,) = nats.objects["StatefulSet", f"{NAME}-copies"]["spec"]["template"]["spec"]["containers"]
    known: dict[str, str] = {}
    for entry in container["env"]:
        if "valueFrom" in entry:
            known[entry["name"]] = (nats.users | readers)[entry["valueFrom"]["secretKeyRef"]["key"]]
        else:
            known[entry["name"]] = expand(entry["value"], known)
    node = nats.nodes[0]
    known["LEAF_0"] = known["LEAF_0"].replace(f"{node.name}.{NAME}.muster.svc:7422", f"127.0.0.1:{node.leaf}")
    client = free_port()
    text: str = nats.objects["ConfigMap", f"{NAME}-copies"]["data"]["nats.conf"]
    home = folder / "copies"
    home.mkdir()
    paths = {
        "0.0.0.0:4222": f"127.0.0.1:{client}",
        "0.0.0.0:8222": f"127.0.0.1:{free_port()}",
        '"/data"': f'"{home}/data"',
        "/var/run/nats": str(home),
        "/etc/nats/tls": str(node.tls),
    }
    for there, here in paths.items():
        text = text.replace(there, here)
    (home / "nats.conf").write_text(text)
    child = Child("copies", [_program(), "--config", str(home / "nats.conf")], home / "log", known)
    child.start()
    try:
        yield f"tls://127.0.0.1:{client}"
    finally:
        await child.stop()
