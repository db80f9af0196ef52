"""Tokens of a pod's service account, as files: asked for when they are first wanted, and again before they expire."""

import time
from collections.abc import Callable

from devcluster.node.environment import BadConfiguration
from devcluster.node.kubernetes import Json, Kubernetes, path_of
from shared.errors import Trouble

RENEWED_AFTER = 0.8
"""Of a token's life, as the kubelet has it."""

DEFAULT_SECONDS = 3600


class Tokens:
    def __init__(self, api: Kubernetes, pod: Callable[[], Json]) -> None:
        self._api = api
        self._pod = pod
        self._known: dict[str, tuple[str, float]] = {}
        """Token and the time of its renewal, by audience."""

    async def of(self, source: Json) -> bytes:
        """For a `serviceAccountToken` of a projected volume; raises `BadConfiguration`."""
        audience = source.get("audience", "")
        token, until = self._known.get(audience, ("", 0.0))
        if time.monotonic() >= until:
            seconds = source.get("expirationSeconds", DEFAULT_SECONDS)
            token = await self._request(audience, seconds)
            self._known[audience] = token, time.monotonic() + RENEWED_AFTER * seconds
        return token.encode()

    async def _request(self, audience: str, seconds: int) -> str:
        metadata, account = self._pod()["metadata"], self._pod()["spec"].get("serviceAccountName", "default")
        pod = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"expirationSeconds": seconds, "boundObjectRef": pod, "audiences": [audience] if audience else []}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = path_of("serviceaccounts", metadata["namespace"], account, "token")
        try:
            answer = await self._api.call("POST", path, request)
        except Trouble as trouble:
            raise BadConfiguration(f'no token for the service account "{account}": {trouble}') from trouble
        return str(answer["status"]["token"])
