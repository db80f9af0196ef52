"""The taints that announce the removal of a node, and the pods that they concern.  Pure.

Only a removal that has begun counts.  A cordon alone does not, as people cordon without draining; nor does
`DeletionCandidateOfClusterAutoscaler`, nor a recommendation to rebalance, nor a node that is not ready or unreachable:
it may come back, and otherwise Kubernetes evicts its pods, which get a condition.
"""

from collections.abc import Collection

from services.watcher.core.observed import ObservedNode
from shared.cluster.objects import Node, Pod, Taint, Toleration

NODE_DELETED = "NodeDeleted"

CONFIGURED = "NodeTainted"
"""The reason of a taint that an administrator has configured."""

WELL_KNOWN = {
    # Kubernetes: the machine is off for good, and its pods are removed by force.
    "node.kubernetes.io/out-of-service": "NodeOutOfService",
    # The cloud controller manager: the machine was shut down.
    "node.cloudprovider.kubernetes.io/shutdown": "NodeShutdown",
    "ToBeDeletedByClusterAutoscaler": "NodeScaledDown",
    "karpenter.sh/disrupted": "NodeDisrupted",
    # Karpenter before its version 1.
    "karpenter.sh/disruption": "NodeDisrupted",
    "aws-node-termination-handler/spot-itn": "SpotInterruption",
    "aws-node-termination-handler/scheduled-maintenance": "ScheduledMaintenance",
    "aws-node-termination-handler/asg-lifecycle-termination": "NodeScaledDown",
    # GKE: spot and preemptible machines that are taken back, and host maintenance.
    "cloud.google.com/impending-node-termination": "NodeTerminating",
    # AKS drains a node whose machine is preempted, redeployed or terminated; the older name and the one of today.
    "remediator.aks.microsoft.com/unschedulable": "NodeTerminating",
    "remediator.kubernetes.azure.com/unschedulable": "NodeTerminating",
}
"""Taints by key, whatever their value, and the reason that goes into the log."""


KEEPS_OFF = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods off; PreferNoSchedule does not."""

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint by which kube-scheduler treats a cordon, even before the node has it."""

GONE = ObservedNode(reason=NODE_DELETED, gone=True)
"""A node that was deleted while pods were on it."""


def observed_node(node: Node, more: Collection[str] = ()) -> ObservedNode:
    """The node reduced to its announced removal.  `more` are configured taints."""
    reason = notice(node, more)
    if not reason:
        return ObservedNode()
    taints = tuple(taint for taint in node.spec.taints or () if taint.effect in KEEPS_OFF)
    return ObservedNode(reason=reason, taints=(*taints, CORDON) if node.spec.unschedulable else taints)


def notice(node: Node, more: Collection[str] = ()) -> str:
    """Why this node is about to be removed; empty if nothing announces that.  `more` are configured taints."""
    if node.metadata.deletion_timestamp is not None:
        return NODE_DELETED
    keys = [taint.key for taint in node.spec.taints or ()]
    known = next((WELL_KNOWN[key] for key in keys if key in WELL_KNOWN), "")
    return known or (CONFIGURED if any(key in more for key in keys) else "")


def tolerations(pod: Pod) -> tuple[Toleration, ...]:
    """The tolerations of a pod without a time limit; Kubernetes gives every pod some of five minutes."""
    return tuple(one for one in pod.spec.tolerations or () if one.toleration_seconds is None)


def leaves(node: ObservedNode, tolerated: Collection[Toleration]) -> bool:
    """True if a pod with these tolerations is released before its node is removed.

    A pod that tolerates all taints of the node is not: kube-scheduler could place its replacement there again.
    """
    return node.gone or any(not any(_tolerates(one, taint) for one in tolerated) for taint in node.taints)


def _tolerates(one: Toleration, taint: Taint) -> bool:
    everything = one.operator == "Exists"
    return (
        (not one.effect or one.effect == taint.effect)
        and (one.key == taint.key or (not one.key and everything))
        and (everything or (one.value or "") == (taint.value or ""))
    )
