"""Files, networks and groups that the node makes on the machine: fixed, so that the next one can clean them up."""

from pathlib import Path

STATE = Path("/run/muster-node")
"""Sockets and running containers."""

DATA = Path("/var/lib/muster-node")
"""Images, file systems of containers, volumes, logs of pods."""

LOCK = Path("/run/muster-node.lock")
"""Held while a node runs: there can be one."""

CONTAINERD_SOCKET = STATE / "containerd.sock"
KUBELET_FOLDER = DATA / "kubelet"
POD_LOGS = DATA / "pod-logs"

CGROUP = "muster-node"
"""All pods are below this group, so that none of another kubelet's is touched."""

BRIDGE = "muster-node0"
NETWORK, GATEWAY, PREFIX = "10.88.0.0/16", "10.88.0.1", 16
"""Of the pods; the gateway is also the address of the kubelet and of the DNS: a kubelet refuses a loopback address."""

LAST_POD = "10.88.254.255"
SERVICES = "10.88.255.0/24"
"""Addresses of Services, out of the pods' network so that no more of the machine's is taken; only that of the API
server, the first one, is anybody's.
"""

POD_NETWORK = "muster-node"
"""The name under which the CNI plugins know it."""

SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""What a kubelet, and the bridge plugin, set for the whole machine."""

SYSCTLS_BEFORE = STATE / "sysctls.json"

CNI_CACHE = Path("/var/lib/cni/results")
CONTAINER_LOG_LINKS = Path("/var/log/containers")
"""Two folders outside ours that containerd and the kubelet insist on."""
