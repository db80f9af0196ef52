"""The addresses of the pods of one node, handed out in turn, so that one is used again as late as possible."""

import ipaddress
from collections.abc import Iterator


class Addresses:
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
        """There are far more addresses than pods a node may have."""
        address = next(address for address in self._turn if address not in self._used)
        self._used.add(address)
        return address

    def give_back(self, address: str) -> None:
        self._used.discard(address)
