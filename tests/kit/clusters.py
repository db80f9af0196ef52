"""Clusters for tests: the one in memory and the embedded API server, with what a test has to do to them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import aiohttp
import pytest
import yaml

from devcluster.start import Devcluster
from shared.cluster import Cluster, Resource
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.memory import MemoryCluster
from shared.cluster.objects import Custom
from shared.cluster.reflector import Pace
from shared.cluster.store import MemoryStore
from tests.kit.watching import PATIENCE

T = TypeVar("T")

WIDGETS = Resource("test.muster.dev", "v1", "widgets", "Widget", Custom)
"""A custom resource with a status subresource, and a rule: `spec.size` is a number."""

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", Custom)
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", Custom)

HISTORY = 50
"""Changes of a kind that the embedded server remembers here."""


class TestCluster(Protocol):
    """A cluster, and what tests do behind the port's back."""

    cluster: Cluster
    namespace: str
    """This test's own."""

    async def another_namespace(self) -> str:
        """One more."""

    async def end_pod(self, name: str) -> None:
        """The kubelet's last word: its containers have ended."""

    async def collect(self) -> None:
        """Let the garbage collector have its turn, if it does not take it by itself."""

    async def terminate(self) -> None:
        """Delete the namespace."""

    async def restart(self) -> None:
        """Kill the server and start it again; nothing that was answered is lost."""

    async def forget(self) -> None:
        """Kill the server; while no watch is connected, `missed()` changes things and their history is lost."""


async def eventually(ask: Callable[[], Awaitable[T | None]], *, until: Callable[[T | None], bool]) -> T | None:
    """Ask until the answer is right, within a bound."""

    async def asking() -> T | None:
        while not until(answer := await ask()):
            await asyncio.sleep(0.01)
        return answer

    return await asyncio.wait_for(asking(), PATIENCE)
