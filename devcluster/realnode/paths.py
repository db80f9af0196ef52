"""Files, networks and groups that the node makes on the machine; their names are fixed, so the next run finds them."""

from pathlib import Path

STATE = Path("/run/muster-node")
"""Sockets and running containers."""

DATA = Path("/var/lib/muster-node")
"""Images, file systems of containers, volumes, logs of pods."""

LOCK = Path("/run/muster-node.lock")
"""Locked while a node runs: a machine can have one."""

CONTAINERD_SOCKET = STATE / "containerd.sock"
KUBELET_FOLDER = DATA / "kubelet"
POD_LOGS = DATA / "pod-logs"

CGROUP = "muster-node"
"""The control group of all pods of the node; pods of another kubelet are in other groups."""

BRIDGE = "muster-node0"
NETWORK, GATEWAY, PREFIX = "10.88.0.0/16", "10.88.0.1", 16
"""The pods' network.  The gateway is also the address of the kubelet, which refuses a loopback address, and the DNS."""

LAST_POD = "10.88.254.255"
SERVICES = "10.88.255.0/24"
"""The Services' network, a part of the pods' network so that the machine needs only one; only the first address, the
API server's, is in use.
"""

POD_NETWORK = "muster-node"
"""The name of the pods' network for the CNI plugins."""

SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""The settings that the kubelet and the bridge plugin change for the whole machine."""

SYSCTLS_BEFORE = STATE / "sysctls.json"

CNI_CACHE = Path("/var/lib/cni/results")
CONTAINER_LOG_LINKS = Path("/var/log/containers")
"""Folders of containerd and the kubelet whose paths cannot be changed."""
