"""An existing cluster: the one that kubectl uses here.

Its administrator's kubeconfig installs; the services get tokens of their service accounts, as in pods of their own.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from devcluster.kubeconfig import write_access
from muster.permissions import HOME
from muster.supervision import Program
from shared.cluster.access import HOME_KUBECONFIG, find_cluster
from shared.cluster.kubeconfig import current_context
from shared.errors import Refused, Transient

TOKEN_SECONDS = 24 * 3600
"""The lifetime of the services' tokens."""

PATIENCE = aiohttp.ClientTimeout(total=30)
"""The timeout of the request for one token."""


class BorrowedCluster:
    lasting = True

    def __init__(
        self,
        data: Path,
        users: Sequence[str] = (),
        images: Mapping[str, Path] | None = None,
        *,
        audit: Path | None = None,
        kubeconfig: Path | None = None,
    ) -> None:
        """`kubeconfig` is the administrator's; by default it is kubectl's.

        Images and an audit log are not supported: the nodes and the API server are not of this stack.
        """
        self._data = data
        self._kubeconfig = kubeconfig or _usual_kubeconfig()
        self._users = users

    def kubeconfig(self, user: str) -> Path:
        return self._data / f"kubeconfig-{user}" if user in self._users else self._kubeconfig

    async def admit(self, users: Sequence[str]) -> None:
        """Write a kubeconfig with a token for each service account.  Raises `Trouble`."""
        access = await find_cluster(self._kubeconfig)
        cluster = current_context([str(self._kubeconfig)]).cluster
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        async with access.open() as session:
            for user in users:
                url = f"{access.url}/api/v1/namespaces/{HOME}/serviceaccounts/{user}/token"
                what, headers = f"ask for a token of the service account {HOME}/{user}", await access.headers()
                try:
                    async with session.post(
                        url, json=request, headers=headers, timeout=PATIENCE, **access.options
                    ) as answer:
                        made = await answer.json(content_type=None)
                except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                    raise Transient(f"{what}: {error or 'timed out'}") from error
                if answer.status != 201:
                    raise Refused(f"{what}: {made.get('message')}", reason="NoToken")
                write_access(self.kubeconfig(user), cluster, user=user, token=made["status"]["token"])

    @property
    def programs(self) -> Sequence[Program]:
        """None: this stack starts no process of the cluster."""
        return ()

    async def __aenter__(self) -> Self:
        self._data.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The cluster goes on."""


def _usual_kubeconfig() -> Path:
    named = os.environ.get("KUBECONFIG", "")
    if os.pathsep in named:
        raise Refused(
            "KUBECONFIG names several files: write one with `kubectl config view --flatten`, and name that",
            reason="BadKubeconfig",
        )
    path = Path(named or HOME_KUBECONFIG).expanduser().absolute()
    if not path.is_file():
        raise Refused(f"there is no kubeconfig at {path}: name one in KUBECONFIG", reason="NoCluster")
    return path
