"""The real control plane on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

    async with ControlPlane(folder, users=["watcher"]) as plane:
        os.environ["KUBECONFIG"] = str(plane.kubeconfig("watcher"))

It has the face of the embedded cluster (`devcluster.start`), and the same node agent registers as a node of it.
Authorization is on: users are service accounts in the namespace `muster` and may do what Roles bind to them.
The programs come from `devcluster.binaries`.
"""

from devcluster.controlplane.programs import ControlPlane

__all__ = ["ControlPlane"]
