"""Who judges a resource of ours: the embedded server's validation alone, or a real API server, by dry runs."""

import copy
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import uuid4

import aiohttp

from devcluster.controlplane import ControlPlane
from tests.crds import admission
from tests.crds.admission import Document

GIVEN_BY_SERVERS = ("uid", "resourceVersion", "generation", "namespace", "creationTimestamp", "managedFields")


class Judge(Protocol):
    """What both answer, in the same words."""

    async def refusals(self, document: Document, old: Document | None = None) -> list[str]:
        """`field: message` for each cause; empty when it is admitted.  With `old` it is an update of that."""

    async def pruned(self, document: Document) -> list[str]:
        """The paths of fields that would be dropped."""


class Embedded:
    async def refusals(self, document: Document, old: Document | None = None) -> list[str]:
        return admission.refusals(document, old)

    async def pruned(self, document: Document) -> list[str]:
        return admission.pruned(document)


class Real:
    """In a namespace of its own; what has to be there for an update is created and deleted again."""

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self.session = session
        self._namespace = namespace

    async def refusals(self, document: Document, old: Document | None = None) -> list[str]:
        if old is None:
            return _causes(*await self.call("POST", self.path(document), document, dryRun="All"))
        held = await self.create(old)
        try:
            part = "" if document.get("status") == old.get("status") else "/status"
            new = _plain(document) | {"metadata": held["metadata"]}
            return _causes(*await self.call("PUT", self.path(document, named=True) + part, new, dryRun="All"))
        finally:
            code, answer = await self.call("DELETE", self.path(old, named=True))
            assert code == 200, answer

    async def pruned(self, document: Document) -> list[str]:
        query = {"dryRun": "All", "fieldValidation": "Warn"}
        async with self.session.post(self.path(document), json=_plain(document), params=query) as answer:
            assert answer.status == 201, await answer.text()
            return [
                path
                for each in answer.headers.getall("Warning", [])
                for path in re.findall(r'unknown field \\"(.*?)\\"', each)
            ]

    async def create(self, document: Document) -> Document:
        """Create it, status and all; return it as it is then."""
        code, held = await self.call("POST", self.path(document), document)
        assert code == 201, held
        if "status" in document:
            held |= {"status": document["status"]}
            code, held = await self.call("PUT", self.path(document, named=True) + "/status", held)
            assert code == 200, held
        return held

    async def call(self, method: str, path: str, body: Document | None = None, **query: str) -> tuple[int, Document]:
        """Status code and answer."""
        given = _plain(body) if body is not None and method == "POST" else body
        async with self.session.request(method, path, json=given, params=query) as answer:
            return answer.status, await answer.json()

    def path(self, document: Document, *, named: bool = False) -> str:
        tail = f"/{document['metadata']['name']}" if named else ""
        return f"/apis/{document['apiVersion']}/namespaces/{self._namespace}/{document['kind'].lower()}s{tail}"


@asynccontextmanager
async def real(plane: ControlPlane) -> AsyncIterator[Real]:
    """A judge on a real API server that serves our kinds."""
    namespace = f"judged-{uuid4().hex[:8]}"
    async with plane.session() as session:
        made: dict[str, Any] = {"metadata": {"name": namespace}}
        async with session.post("/api/v1/namespaces", json=made) as answer:
            assert answer.status == 201, await answer.text()
        yield Real(session, namespace)
        async with session.delete(f"/api/v1/namespaces/{namespace}") as answer:
            assert answer.status == 200, await answer.text()


def _plain(document: Document) -> Document:
    """As a user writes it."""
    plain = copy.deepcopy(document)
    for field in GIVEN_BY_SERVERS:
        plain["metadata"].pop(field, None)
    return plain


def _causes(code: int, answer: Document) -> list[str]:
    if code in (200, 201):
        return []
    assert code == 422, answer
    return [f"{cause.get('field')}: {cause['message']}" for cause in answer["details"]["causes"]]
