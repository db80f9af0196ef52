"""A small client of the Kubernetes API: one session, JSON bodies, errors sorted by what to do next."""

import asyncio
import base64
import random
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import yaml

from shared.cluster.connections import AbruptResponse
from shared.errors import Conflict, Refused, Transient

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

REQUEST_TIMEOUT = 15.0
FIRST_DELAY, LAST_DELAY = 0.1, 5.0
"""Seconds between two attempts; short, because the server of a development cluster is back soon."""


class Backoff:
    """Growing, jittered delays."""

    def __init__(self) -> None:
        self._next = FIRST_DELAY

    def reset(self) -> None:
        self._next = FIRST_DELAY

    async def wait(self) -> None:
        # Jitter spreads the load of many clients; it guards no secret.
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))  # noqa: S311
        self._next = min(2 * self._next, LAST_DELAY)


@dataclass(frozen=True)
class Access:
    """Where the API server is, and how to be let in."""

    url: str
    tls: ssl.SSLContext | None
    token: str


def read_kubeconfig(path: Path) -> Access:
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    url = str(cluster["server"]).rstrip("/")
    return Access(
        url, _tls(cluster, user, path.parent) if url.startswith("https:") else None, _token(user, path.parent)
    )


def _named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def _token(user: Json, folder: Path) -> str:
    file = user.get("tokenFile")
    return (folder / file).read_text().strip() if file else str(user.get("token", ""))


def _tls(cluster: Json, user: Json, folder: Path) -> ssl.SSLContext:
    authority = _inlined(cluster, "certificate-authority", folder)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate = _inlined(user, "client-certificate", folder)
    if certificate:
        # OpenSSL takes a certificate of its own only from files.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + _inlined(user, "client-key", folder))
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


def _inlined(entry: Json, name: str, folder: Path) -> bytes:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data)
    return (folder / entry[name]).read_bytes() if entry.get(name) else b""


class Kubernetes:
    def __init__(self, access: Access, agent: str) -> None:
        self.url = access.url
        headers = {"User-Agent": agent} | ({"Authorization": f"Bearer {access.token}"} if access.token else {})
        self.session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(ssl=access.tls or False, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
            response_class=AbruptResponse,
        )

    async def close(self) -> None:
        await self.session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        media: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """One attempt; raises `Transient`, `Conflict` or `Refused`."""
        what = f"{method} {path}"
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self.session.request(
                method,
                self.url + path,
                data=data,
                params=query,
                headers={"Content-Type": media},
                timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT),
            ) as response:
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Transient(f"{what}: {error or type(error).__name__}") from error
        if response.status < 300:
            return decode(raw, what)
        raise trouble(response.status, raw, what)

    async def insist(self, method: str, path: str, body: Json | None = None, **options: Any) -> Json:
        """Repeat until it is answered; raises `Conflict` or `Refused`."""
        backoff = Backoff()
        while True:
            try:
                return await self.call(method, path, body, **options)
            except Transient:
                await backoff.wait()


def decode(raw: bytes, what: str) -> Json:
    try:
        return msgspec.json.decode(raw, type=Json)
    except msgspec.MsgspecError as error:
        raise Transient(f"{what}: the answer is no JSON object") from error


def trouble(code: int, raw: bytes, what: str) -> Exception:
    try:
        status = msgspec.json.decode(raw, type=Json)
    except msgspec.MsgspecError:
        status = {}
    message = f"{what}: {code} {status.get('message', '')}".strip()
    if code == 429 or code >= 500:
        return Transient(message)
    if code == 409 and status.get("reason") != "AlreadyExists":
        return Conflict(message)
    reasons = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound"}
    return Refused(message, reason=str(status.get("reason") or reasons.get(code, "BadRequest")))


def path_of(plural: str, namespace: str = "", name: str = "", *rest: str, group: str = "api/v1") -> str:
    parts = [group]
    if namespace:
        parts += ["namespaces", quote(namespace)]
    parts += [plural]
    if name:
        parts += [quote(name), *rest]
    return "/" + "/".join(parts)
