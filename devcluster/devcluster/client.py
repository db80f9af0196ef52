"""A small client of the Kubernetes API for objects as plain JSON: what a node agent and a development cluster need.

It reads kubeconfigs with everything inlined, as `kubeconfig.py` writes them.
"""

import asyncio
import base64
import random
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import structlog
import yaml

from devcluster.clock import doubled

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

IN_FLIGHT = 16
"""The most requests and watches of one client at a time."""

TIMEOUT = aiohttp.ClientTimeout(total=15.0, sock_connect=5.0)
WATCH_SECONDS = 300
IDLE_SECONDS = 90.0
"""A watch without data for so long is dead: bookmarks come about once a minute."""

FIRST_DELAY, LAST_DELAY = 0.1, 5.0
"""Seconds between two attempts; short, because the API server of a development cluster restarts quickly."""

LONGEST_MESSAGE = 300
"""Characters of the server's message that an error repeats."""

log = structlog.get_logger()


class Trouble(Exception):  # noqa: N818 - never raised itself
    """A request failed; the message says which and why."""


class Transient(Trouble):
    """It may work later: no answer, or one that asks to try again."""


class Conflict(Trouble):
    """Another write came first, or another object has the name."""


class Refused(Trouble):
    """The same request would fail again."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        """The reason of the API's Status, such as `NotFound`."""


class AbruptResponse(aiohttp.ClientResponse):
    """An answer whose connection is aborted if the answer was not read to its end.

    A TLS connection that is closed instead waits up to half a minute for the server's goodbye.
    """

    def close(self) -> None:
        self._drop()
        super().close()

    def release(self) -> Any:
        self._drop()
        return super().release()

    def _drop(self) -> None:
        # An answer that was read to its end has returned its connection already.
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()


class Delays:
    """The waits between attempts: each twice as long, with jitter, so that nodes do not come back together."""

    def __init__(self) -> None:
        self._failures = 0

    def next(self) -> float:
        self._failures += 1
        return doubled(FIRST_DELAY, self._failures, LAST_DELAY) * random.random()  # noqa: S311 - it guards no secret

    def reset(self) -> None:
        self._failures = 0


class Kubernetes:
    def __init__(self, kubeconfig: Path, agent: str) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url = str(cluster["server"])
        trust = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode(),
        )
        self._session = aiohttp.ClientSession(
            self.url,
            headers={"Authorization": f"Bearer {user['token']}", "User-Agent": agent, "Accept": "application/json"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=IN_FLIGHT),
            response_class=AbruptResponse,
            timeout=TIMEOUT,
        )

    async def close(self) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Json | None = None, *, media: str = "application/json") -> Json:
        """One attempt; raises `Transient`, `Conflict` or `Refused`."""
        what, data = f"{method} {path}", None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": media}
        with _trouble(what):
            async with self._session.request(method, path, data=data, headers=headers) as response:
                return await self._answer(response, method, what)

    async def insist(self, method: str, path: str, body: Json | None = None, **options: Any) -> Json:
        """Repeat the call until it is answered; raises `Conflict` or `Refused`."""
        delays = Delays()
        while True:
            try:
                return await self.call(method, path, body, **options)
            except Transient:
                await asyncio.sleep(delays.next())

    async def follow(
        self,
        plural: str,
        changed: Callable[[Json], None],
        gone: Callable[[str], None],
        listed: asyncio.Event,
        *,
        fields: str = "",
    ) -> None:
        """For ever: call `changed` with each object that `fields` selects, and `gone` with the uid of a removed one.

        `listed` is set after the first complete list.  After a gap, `changed` may get an object again.
        """
        delays, present = Delays(), set[str]()
        query = {"fieldSelector": fields} if fields else {}
        while True:
            try:
                version = await self._list(plural, query, changed, gone, present)
                listed.set()
                delays.reset()
                while version:
                    version = await self._watch(plural, query | {"resourceVersion": version}, changed, gone, present)
            except Trouble as trouble:
                log.debug("watch broken", resource=plural, problem=str(trouble))
            # A new list comes after each error: the server may be another one, or its store an older one.
            await asyncio.sleep(delays.next())

    async def _list(
        self,
        plural: str,
        query: dict[str, str],
        changed: Callable[[Json], None],
        gone: Callable[[str], None],
        present: set[str],
    ) -> str:
        what = f"list {plural}"
        with _trouble(what):
            async with self._session.get(path_of(plural), params=query) as response:
                found = await self._answer(response, "GET", what)
        items = found["items"] or []
        uids = {item["metadata"]["uid"] for item in items}
        for uid in present - uids:
            gone(uid)
        present.clear()
        present |= uids
        for item in items:
            changed(item)
        return str(found["metadata"]["resourceVersion"])

    async def _watch(
        self,
        plural: str,
        query: dict[str, str],
        changed: Callable[[Json], None],
        gone: Callable[[str], None],
        present: set[str],
    ) -> str:
        """The version from which the next watch may start; empty if a list has to come first."""
        what, version = f"watch {plural}", query["resourceVersion"]
        options = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT.sock_connect, sock_read=IDLE_SECONDS)
        with _trouble(what):
            async with self._session.get(path_of(plural), params=query | options, timeout=timeout) as response:
                if response.status != 200:
                    await self._answer(response, "GET", what)
                rest = b""
                async for chunk in response.content.iter_any():
                    # Lines of any length: the stream's own reader of lines has a limit.
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = msgspec.json.decode(line)
                        if event["type"] == "ERROR":
                            return ""
                        metadata = event["object"]["metadata"]
                        version = metadata["resourceVersion"]
                        if event["type"] == "DELETED":
                            present.discard(metadata["uid"])
                            gone(metadata["uid"])
                        elif event["type"] != "BOOKMARK":
                            present.add(metadata["uid"])
                            changed(event["object"])
                # An end within a line is a cut.
                return "" if rest else version

    async def _answer(self, response: aiohttp.ClientResponse, method: str, what: str) -> Json:
        found = msgspec.json.decode(await response.read())
        if not isinstance(found, dict):
            raise Transient(f"{what}: the answer is not a JSON object")
        if response.status < 300:
            return found
        code, reason, said = response.status, str(found.get("reason", "")), str(found.get("message", ""))
        message = f"{what}: {code} {reason}: {said[:LONGEST_MESSAGE]}"
        if code in (401, 408, 429) or code >= 500 or (code == 403 and await self._is_starting(said)):
            raise Transient(message)
        # A uid in a patch is a precondition; the API server reports a change of an immutable field.
        causes = (found.get("details") or {}).get("causes") or ()
        if code == 422 and method == "PATCH" and any(cause.get("field") == "metadata.uid" for cause in causes):
            raise Conflict(message)
        if code == 409 and reason != "AlreadyExists":
            raise Conflict(message)
        raise Refused(message, reason)

    async def _is_starting(self, said: str) -> bool:
        """True if the server forbids everything because it has not read its roles yet."""
        if '" cannot ' not in said:
            return False
        async with self._session.get("/readyz") as response:
            return response.status != 200


@contextmanager
def _trouble(what: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise Transient(f"{what}: timed out") from error
    except (aiohttp.ClientError, OSError, msgspec.MsgspecError) as error:
        raise Transient(f"{what}: {error or type(error).__name__}") from error


def path_of(plural: str, namespace: str = "", name: str = "", *rest: str, group: str = "api/v1") -> str:
    parts = [group]
    if namespace:
        parts += ["namespaces", quote(namespace)]
    parts += [plural]
    if name:
        parts += [quote(name), *rest]
    return "/" + "/".join(parts)
