"""The real control plane on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

    async with ControlPlane(folder, users=["watcher"]) as plane:
        os.environ["KUBECONFIG"] = str(plane.kubeconfig("watcher"))

It has the interface of the embedded cluster (`devcluster.start`), and uses the same node agent.
RBAC is on: users are service accounts in the namespace `muster`, with the rights of their role bindings.
The programs come from `devcluster.binaries`.
"""

from devcluster.controlplane.programs import ControlPlane

__all__ = ["ControlPlane"]
