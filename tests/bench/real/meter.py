"""What a piece of work costs: calls to the API server, as its audit log has them, and processor time."""

from collections import Counter
from pathlib import Path

from tests.bench.real.world import World
from tests.kit.operator import audited

Calls = Counter[str]
"""How many of each verb and resource, such as `patch trainingjobs/status`."""


class Meter:
    """Runs from its construction, over the calls about one namespace."""

    def __init__(self, world: World, namespace: str) -> None:
        self._world = world
        self._namespace = namespace
        self._written = world.audit.stat().st_size
        self._apiserver, self._used = world.apiserver_used(), world.used()

    def apiserver(self) -> float:
        """Processor seconds of kube-apiserver."""
        return self._world.apiserver_used() - self._apiserver

    def used(self) -> dict[str, float]:
        """Processor seconds of each process of the operator."""
        return {name: spent - self._used[name] for name, spent in self._world.used().items()}

    def calls(self) -> Calls:
        return _calls(self._world.audit, self._namespace, after=self._written)


def _calls(audit: Path, namespace: str, *, after: int) -> Calls:
    """Those beyond the log's first `after` bytes, without lists, watches and what each namespace has."""
    found = Calls()
    for call in audited(audit, after=after):
        of = call.get("objectRef", {})
        counts = call["verb"] not in ("watch", "list") and of.get("name") not in ("default", "kube-root-ca.crt")
        if counts and of.get("namespace") == namespace:
            found[f"{call['verb']} {'/'.join(filter(None, (of['resource'], of.get('subresource'))))}"] += 1
    return found


def listed(found: Calls, per: int) -> str:
    """Each for one of so many jobs or changes."""
    return ", ".join(f"{name} {number / per:.1f}" for name, number in sorted(found.items()))
