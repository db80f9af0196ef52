"""An existing cluster: the one that kubectl uses here.

Its administrator's kubeconfig installs; the services get tokens of their service accounts, as in pods of their own.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from devcluster.kubeconfig import write_access
from muster.permissions import HOME
from muster.supervision import Program
from shared.cluster.access import HOME_KUBECONFIG
from shared.cluster.kube import KubeCluster
from shared.cluster.kubeconfig import current_context
from shared.errors import Refused

TOKENS = f"/api/v1/namespaces/{HOME}/serviceaccounts/{{}}/token"
TOKEN_REQUEST = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenRequest",
    # A day.
    "spec": {"expirationSeconds": 24 * 3600},
}


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
        context = current_context([str(self._kubeconfig)])
        kube = await KubeCluster.connect(self._kubeconfig)
        try:
            for user in users:
                path, what = TOKENS.format(user), f"ask for a token of the service account {HOME}/{user}"
                answer = await kube.ask(path, what=what, review=TOKEN_REQUEST)
                token = msgspec.json.decode(answer.body)["status"]["token"]
                write_access(self.kubeconfig(user), context.cluster, user=user, token=token)
        finally:
            await kube.close()

    @property
    def programs(self) -> Sequence[Program]:
        """None: this stack starts no process of the cluster."""
        return ()

    async def __aenter__(self) -> Self:
        self._data.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_: object) -> None:
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
