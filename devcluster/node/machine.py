"""The parts of the node that its pods use."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devcluster.node.images import Images
from devcluster.node.kubernetes import Kubernetes
from devcluster.node.reporter import Recorder
from devcluster.node.runtime import Runtime


class Addresses:
    """The addresses of one node's pods, taken in turn, so that each is reused as late as possible."""

    def __init__(self, network: str) -> None:
        self._network = ipaddress.IPv4Network(network)
        self.gateway = str(self._network.network_address + 1)
        self._used: set[str] = set()
        self._turn = self._forever()

    def _forever(self) -> Iterator[str]:
        while True:
            for address in self._network.hosts():
                if str(address) != self.gateway:
                    yield str(address)

    def take(self) -> str:
        """Return an unused address; the network has far more addresses than a node has pods."""
        address = next(address for address in self._turn if address not in self._used)
        self._used.add(address)
        return address

    def give_back(self, address: str) -> None:
        self._used.discard(address)


@dataclass(frozen=True, kw_only=True)
class Machine:
    folder: Path
    api: Kubernetes
    runtime: Runtime
    addresses: Addresses
    images: Images
    recorder: Recorder
    host_address: str
    resolver: str
    """The address of the name server."""
    restart_delay: float
    """Seconds of a container's first CrashLoopBackOff."""
