"""A real node for the real control plane: kubelet, containerd and CoreDNS as child processes, on this machine.

It needs Linux, root, and the packages of `machine.py`; its images are built here, without an image registry.
One such node at a time on a machine: a kubelet has fixed ports, and the machine's cgroups and mounts are shared.
Its files, networks and groups on the machine are named in `machine.py`, and gone after the context;
the next run removes those of a killed one.
Only the API server has a ClusterIP, and the pods' network has no route to the outside.
"""

from devcluster.realnode.node import NAME, USER, NodeError, RealCluster, RealNode, obstacle

__all__ = ["NAME", "USER", "NodeError", "RealCluster", "RealNode", "obstacle"]
