"""A real node for the real control plane: kubelet, containerd and CoreDNS as child processes, on this machine.

Needs Linux, root, and the packages of `machine.py`; its images are built here, no registry of images is asked.
One such node at a time on a machine: a kubelet has fixed ports, and the machine's cgroups and mounts are shared.
What it leaves on the machine is below the folders and names of `paths.py`, and gone after the context;
what a killed run left is cleaned up by the next.
Of ClusterIPs there is the API server's alone, and there is no way out of the pods' network.
"""

from devcluster.realnode.node import NAME, USER, NodeError, RealCluster, RealNode, obstacle

__all__ = ["NAME", "USER", "NodeError", "RealCluster", "RealNode", "obstacle"]
