"""The `elasticPolicy` of a PyTorchJob: the bounds of its size, and the rendezvous of torchrun's agents.  Pure."""

import re
from typing import NamedTuple

from shared.frameworks.definition import Document
from shared.frameworks.reading import MOST_WORKERS, Fields
from shared.frameworks.rendezvous import C10D
from shared.frameworks.schemas import ANYTHING, BOOLEAN, TEXT, choice, number, rule

FIELD = "elasticPolicy"
BACKENDS = ("", C10D, "etcd", "etcd-v2")
"""The rendezvous backends of upstream; empty means absent."""

HIGHEST_PORT = 65535

SCHEMA: Document = {
    "type": "object",
    "description": "Lets workers come and go between two numbers, under torchrun.",
    "properties": {
        "minReplicas": number(1, MOST_WORKERS, "The fewest workers; maxReplicas when absent."),
        "maxReplicas": number(1, MOST_WORKERS, "The most workers; minReplicas when absent."),
        "rdzvBackend": choice(*BACKENDS, description="c10d when absent."),
        "rdzvHost": TEXT | {"description": "A small pod of the job's own when absent."},
        "rdzvPort": number(1, HIGHEST_PORT, "The workers' pytorchjob-port when absent."),
        "rdzvId": TEXT,
        "rdzvConf": {"type": "array", "items": {"type": "object", "properties": {"key": TEXT, "value": TEXT}}},
        "standalone": BOOLEAN,
        "nProcPerNode": number(1, description="Processes per pod; nprocPerNode is its newer name."),
        "maxRestarts": number(description="How often torchrun begins again within a pod."),
        "metrics": {
            "type": "array",
            "description": "Kept and not acted upon: create a HorizontalPodAutoscaler with them.",
            "items": ANYTHING,
        },
    },
    "x-kubernetes-validations": [
        rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "set minReplicas to at most maxReplicas",
            field=".minReplicas",
        )
    ],
}

UNSHARED = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Has the processes of each round make a store of their own.

Since 2.4 torchrun writes the address of one store for all rounds, once: a worker that joins later waits for it in vain.
"""

_HOST = re.compile(r"[^\s/:\[\]]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
"""A host name, an address, an IPv6 address in brackets, or a variable; the port has a field of its own."""

_KEY = re.compile(r"[^\s=,]+")


class Elastic(NamedTuple):
    """An `elasticPolicy`."""

    least: int
    most: int
    backend: str
    host: str
    """Empty means the job's rendezvous pod, or where it has none the first worker."""
    port: int
    """0 means the workers' port."""
    id: str
    conf: str
    standalone: bool
    processes: int
    """Processes of each pod; 0 if absent."""
    restarts: int | None

    @property
    def stretches(self) -> bool:
        """True if the job may have another size than its first."""
        return self.least < self.most

    @property
    def needs_store(self) -> bool:
        """True if torchrun serves the store itself, and the user names no place for it."""
        return self.backend == C10D and not self.host and not self.standalone

    def environment(self, host: str, port: int) -> dict[str, str]:
        """The variables that torchrun reads; the store is at `host` and `port` unless the policy says otherwise."""
        found = {
            "PET_RDZV_ENDPOINT": f"{self.host or host}:{self.port or port}",
            "PET_RDZV_BACKEND": self.backend,
            "PET_NNODES": f"{self.least}:{self.most}",
        } | UNSHARED
        if self.restarts is not None:
            found["PET_MAX_RESTARTS"] = str(self.restarts)
        if self.processes:
            found["PET_NPROC_PER_NODE"] = str(self.processes)
        if self.id:
            found["PET_RDZV_ID"] = self.id
        if self.conf:
            found["PET_RDZV_CONF"] = self.conf
        if self.standalone:
            # Upstream leaves it empty, and torchrun, which reads a number, fails at once.
            found["PET_STANDALONE"] = "1"
        return found


def elastic_policy(spec: Fields, replicas: int) -> Elastic | None:
    """The policy of a job with this number of workers, or None without one; problems are noted in `spec`."""
    if not spec.has(FIELD):
        return None
    policy = spec.part(FIELD)
    least = policy.integer("minReplicas", least=1, most=MOST_WORKERS)
    most = policy.integer("maxReplicas", least=1, most=MOST_WORKERS)
    if least is not None and most is not None and least > most:
        policy.refuse("MinimumAboveMaximum", "set at most maxReplicas, or raise maxReplicas", "minReplicas")
    policy.parts("metrics")
    return Elastic(
        least=least or most or replicas,
        most=most or least or replicas,
        backend=policy.choice("rdzvBackend", BACKENDS, "", reason="UnknownRendezvousBackend") or C10D,
        host=_host(policy),
        port=policy.integer("rdzvPort", least=1, most=HIGHEST_PORT) or 0,
        id=policy.text("rdzvId"),
        conf=_conf(policy),
        standalone=policy.boolean("standalone"),
        processes=policy.integer("nProcPerNode", least=1) or 0,
        restarts=policy.integer("maxRestarts", least=0),
    )


def _host(policy: Fields) -> str:
    host = policy.text("rdzvHost")
    if host and not _HOST.fullmatch(host):
        message = "write a host name or an address alone; the port stands in rdzvPort"
        policy.refuse("InvalidRendezvous", message, "rdzvHost")
    return host


def _conf(policy: Fields) -> str:
    """The configuration in torchrun's format: `key=value,key=value`."""
    pairs: list[str] = []
    for item in policy.parts("rdzvConf"):
        key, value = item.text("key"), item.text("value")
        if not _KEY.fullmatch(key) or "," in value:
            message = "write a key without blanks, commas and equals signs, and a value without commas"
            item.refuse("InvalidRendezvous", message)
        pairs.append(f"{key}={value}")
    return ",".join(pairs)
