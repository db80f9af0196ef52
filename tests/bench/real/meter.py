"""What a piece of work costs: calls to the API server, as its audit log has them, and processor time."""

from collections import Counter
from pathlib import Path

import msgspec

from tests.bench.real.world import World


class _Object(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Call(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    object_ref: _Object = _Object()


_decode = msgspec.json.Decoder(_Call).decode

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
    with audit.open("rb") as log:
        log.seek(after)
        *whole, _ = log.read().split(b"\n")
    found = Calls()
    for call in map(_decode, whole):
        of = call.object_ref
        if (
            call.verb not in ("watch", "list")
            and of.namespace == namespace
            and of.name not in ("default", "kube-root-ca.crt")
        ):
            found[f"{call.verb} {'/'.join(filter(None, (of.resource, of.subresource)))}"] += 1
    return found


def listed(found: Calls, per: int) -> str:
    """Each for one of so many jobs or changes."""
    return ", ".join(f"{name} {number / per:.1f}" for name, number in sorted(found.items()))
