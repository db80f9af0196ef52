"""What pods need of their node, gathered once."""

from dataclasses import dataclass
from pathlib import Path

from devcluster.node.addresses import Addresses
from devcluster.node.images import Images
from devcluster.node.kubernetes import Kubernetes
from devcluster.node.recorder import Recorder
from devcluster.node.runtime import Runtime


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
    """Seconds of the first CrashLoopBackOff."""
