"""The configuration files of containerd, the CNI plugins, the kubelet and CoreDNS.

Pure.  All other settings have their defaults, so that a pod runs as in other clusters.
"""

import json
from pathlib import Path

from devcluster.realnode import machine
from devcluster.realnode.images import PAUSE

CLUSTER_DOMAIN = "cluster.local"


def containerd(cni_plugins: Path) -> str:
    return f"""\
version = 2
root = "{machine.DATA}/containerd"
state = "{machine.STATE}/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart"]

[grpc]
address = "{machine.CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# Lowering oom_score_adj takes the capability SYS_RESOURCE, which this machine may lack.
restrict_oom_score_adj = true
# Where clean-up finds them.
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_plugins}"
conf_dir = "{machine.DATA}/cni"
"""


def pod_network() -> str:
    """The CNI configuration: one bridge for all pods, without a route to other machines."""
    addresses = {
        "type": "host-local",
        "dataDir": f"{machine.STATE}/addresses",
        "ranges": [[{"subnet": machine.NETWORK, "rangeEnd": machine.LAST_POD, "gateway": machine.GATEWAY}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": machine.BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return json.dumps({"cniVersion": "1.0.0", "name": machine.POD_NETWORK, "plugins": [bridge]}, indent=2)


def kubelet(client_authority: Path, resolv_conf: Path) -> str:
    """The kubelet's configuration: it accepts only clients with a certificate of `client_authority`: the API server."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": machine.GATEWAY,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(client_authority)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{machine.CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{machine.CGROUP}",
            # Development machines may have control groups of version 1, and swap.
            "failCgroupV1": False,
            "failSwapOn": False,
            "clusterDNS": [machine.GATEWAY],
            "clusterDomain": CLUSTER_DOMAIN,
            # Pods do not use the machine's search domains.
            "resolvConf": str(resolv_conf),
            "podLogsDir": str(machine.POD_LOGS),
            "volumePluginDir": str(machine.DATA / "volume-plugins"),
            "makeIPTablesUtilChains": False,
            # A development machine's disk is often nearly full, and removed images cannot be pulled again.
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            # A container that fails again begins after a second, not after 10 s and then 20 s.
            "featureGates": {"KubeletCrashLoopBackOffMax": True},
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        },
        indent=2,
    )


def coredns(kubeconfig: Path) -> str:
    """CoreDNS answers names of the cluster, and all others with NXDOMAIN at once, instead of after a timeout."""
    return f"""\
{CLUSTER_DOMAIN}:53 10.in-addr.arpa:53 {{
    bind {machine.GATEWAY}
    errors
    kubernetes {CLUSTER_DOMAIN} 10.in-addr.arpa {{
        kubeconfig {kubeconfig}
    }}
}}
.:53 {{
    bind {machine.GATEWAY}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def resolv_conf() -> str:
    return f"nameserver {machine.GATEWAY}\n"
