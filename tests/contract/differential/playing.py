"""Playing a sequence on one server, in a namespace of its own, and what it answered in a form that can be compared.

Left as they are: codes, bodies, the words of errors, warnings of unknown fields, and what a watch of all of it saw.
Told apart but not compared: uids, times, drawn names, and versions, of which only the order counts.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from tests.contract.differential.kinds import KINDS, Json, Kind
from tests.contract.differential.sequences import (
    CONTINUE,
    FIRST_VERSION,
    NAMESPACE,
    UID,
    VERSION,
    Step,
    kinds_of,
)
from tests.devcluster.apiserver.client import Client
from tests.memory.merge import merged

END = "the-end"
"""The object whose appearance ends a watch."""
PATIENCE = 10.0
STRANGERS = ("kube-root-ca.crt",)
"""Objects that controllers make in every namespace, at their own time."""

TIMES = ("creationTimestamp", "deletionTimestamp", "lastTransitionTime")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
STORAGE = re.compile(r"StorageError: .* AdditionalErrorMsg: ")
GO = re.compile(r"(?<= value: )\{.*\}")
"""Objects as Go prints them."""
VERSION_IN_TEXT = re.compile(r"\((\d+)\)")
MADE = re.compile(r"made-[a-z0-9]{5}")


async def play(client: Client, steps: Sequence[Step]) -> list[Any]:
    """The comparable answers, one for each step and one for the watch of each kind."""
    namespace = f"diff-{uuid4().hex[:10]}"
    made = await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert made.code == 201, made.body
    player = _Player(client, namespace)
    answers = [await player.do(step) for step in steps]
    start = made.body["metadata"]["resourceVersion"]
    watches = [await player.watch(kind, start) for kind in kinds_of(steps)]
    return Comparable(namespace).all([*answers, *watches])


async def wake(client: Client) -> None:
    """Ask once for each kind: a history that can be watched begins with the first request."""
    for kind in KINDS:
        await client.until(kind.path("default"), lambda answer: answer.code == 200)


class _Player:
    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._seen: dict[tuple[str, str], list[Json]] = {}
        """What was seen of each object that is called by its name."""
        self._tokens: dict[str, str] = {}

    async def do(self, step: Step) -> Any:
        kind = next(kind for kind in kinds_of([step]))
        path = "/".join(part for part in (kind.path(self._namespace), step.name, step.subresource) if part)
        query = self._filled(step, step.query)
        if query:
            path += "?" + "&".join(f"{name}={_quoted(str(value))}" for name, value in query.items())
        body = self._filled(step, step.body)
        if step.from_seen:
            seen = self._seen.get((step.plural, step.name))
            start = seen[-1] if seen else {"apiVersion": kind.api_version, "kind": kind.kind, **kind.base}
            start = self._filled(step, start)
            body = merged(merged({"metadata": {"name": step.name}}, start), body)
        sent = None if body is None else json.dumps(body).encode()
        answer = await self._client.call(step.method, path, sent, media=step.media)
        body = answer.body if isinstance(answer.body, dict) else answer.body.decode()
        if answer.code < 300 and isinstance(body, dict):
            self._remember(step, body)
        warnings = sorted(text for text in answer.headers.getall("Warning", []) if "unknown field" in text)
        return {"code": answer.code, "body": body, "warnings": warnings}

    async def watch(self, kind: Kind, start: str) -> Any:
        """What a watch of everything saw."""
        path = kind.path(self._namespace)
        body = merged(kind.base, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": END}})
        created = await self._client.create(path, self._filled(Step("", kind.plural), body))
        assert created.code == 201, created.body
        seen: list[Any] = []
        async with asyncio.timeout(PATIENCE):
            async for event in self._client.watch(f"{path}?watch=1&resourceVersion={start}"):
                if event[1].get("metadata", {}).get("name") == END:
                    return {"watch": kind.plural, "events": seen}
                seen.append({"type": event[0], "object": event[1]})
        raise AssertionError(f"the watch of {kind.plural} ended early: {seen}")

    def _remember(self, step: Step, body: Json) -> None:
        if body.get("kind", "").endswith("List"):
            self._tokens[step.plural] = body["metadata"].get("continue") or "nothing"
        elif body.get("kind") not in ("Status", "Scale") and "dryRun" not in step.query:
            name = step.name or body["metadata"]["name"]
            self._seen.setdefault((step.plural, name), []).append(body)

    def _filled(self, step: Step, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._filled(step, inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(step, inner) for inner in value]
        if not isinstance(value, str) or not value.startswith("<"):
            return value
        seen = self._seen.get((step.plural, step.name)) or [{}]
        first, last = seen[0].get("metadata") or {}, seen[-1].get("metadata") or {}
        known = {
            NAMESPACE: self._namespace,
            UID: last.get("uid", "none"),
            VERSION: last.get("resourceVersion", "1"),
            FIRST_VERSION: first.get("resourceVersion", "1"),
            CONTINUE: self._tokens.get(step.plural, "nothing"),
        }
        return known.get(value, value)


def _quoted(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else f"%{ord(letter):02X}" for letter in text)


class Comparable:
    """Answers with all that may differ between two right servers put into words that do not."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def all(self, answers: list[Any]) -> list[Any]:
        answers = [_without_strangers(answer) for answer in answers]
        versions: set[int] = set()
        for answer in answers:
            _collect_versions(answer, versions)
        self._versions = {str(version): f"version {rank}" for rank, version in enumerate(sorted(versions))}
        return [self._of(_about_refusals(answer)) for answer in answers]

    def _of(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._of(inner, key) for key, inner in value.items() if key != "managedFields"}
        if isinstance(value, list):
            return [self._of(inner, name) for inner in value]
        if not isinstance(value, str):
            return value
        if name == "resourceVersion":
            return self._versions.get(value, value)
        if name in TIMES:
            return f"<{name}>"
        if name == "continue" and value:
            return CONTINUE
        return self._text(value)

    def _text(self, text: str) -> str:
        text = text.replace(self._namespace, NAMESPACE)
        text = UUID.sub(lambda found: self._uids.setdefault(found[0], f"uid {len(self._uids)}"), text)
        text = VERSION_IN_TEXT.sub(lambda found: f"({self._versions.get(found[1], found[1])})", text)
        return MADE.sub("made-<drawn>", text)


def _about_refusals(answer: Any) -> Any:
    """A refusal without what no client can rely on."""
    if answer.get("code", 200) < 300 or not isinstance(answer["body"], dict):
        return answer
    body = dict(answer["body"])
    causes = (body.get("details") or {}).get("causes") or []
    if "pod updates may not change" in body.get("message", ""):
        # Followed by a long comparison of the two specs.
        return {
            "code": answer["code"],
            "reason": body["reason"],
            "causes": sorted({cause["field"] for cause in causes}),
        }
    if "declared merge key" in body["message"]:
        body["message"] = "a merge key is missing"
    # Where a precondition failed in the store, its key is told as well.
    body["message"] = STORAGE.sub("", body["message"])
    if body.get("code") in (400, 415):
        # The words are those of Go's decoders.
        del body["message"]
        body.pop("details", None)
    if causes:
        # They are found in the order of a Go map, which is another each time, and on updates often twice.
        causes = [
            cause | {"message": "" if cause["field"] == "patch" else GO.sub("<value>", cause["message"])}
            for cause in causes
            # Of a replica count of the wrong type the embedded server names the schema alone.
            if "accessor error" not in cause["message"]
        ]
        each = {json.dumps(cause, sort_keys=True): cause for cause in causes}
        body["details"] = {**body["details"], "causes": [each[text] for text in sorted(each)]}
        body["message"] = body["message"].partition(": ")[0]
    return {"code": answer["code"], "body": body}


def _collect_versions(value: Any, versions: set[int]) -> None:
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict) and metadata.get("uid") and str(metadata.get("resourceVersion", "")).isdecimal():
            versions.add(int(metadata["resourceVersion"]))
        for inner in value.values():
            _collect_versions(inner, versions)
    elif isinstance(value, list):
        for inner in value:
            _collect_versions(inner, versions)


def _without_strangers(value: Any) -> Any:
    if isinstance(value, dict):
        if "items" in value and "metadata" in value:
            # Its version is that of the whole cluster, where others write too.
            value = {**value, "metadata": {**value["metadata"], "resourceVersion": "<now>"}}
        # What was only tried has no version, or shows the 0 that was sent.
        kept = {name: inner for name, inner in value.items() if (name, inner) != ("resourceVersion", "0")}
        return {name: _without_strangers(inner) for name, inner in kept.items()}
    if isinstance(value, list):
        return [_without_strangers(inner) for inner in value if not _is_strange(inner)]
    return value


def _is_strange(value: Any) -> bool:
    thing = value.get("object", value) if isinstance(value, dict) else None
    metadata = thing.get("metadata") if isinstance(thing, dict) else None
    return isinstance(metadata, dict) and metadata.get("name") in STRANGERS
