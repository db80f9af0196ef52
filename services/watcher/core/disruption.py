"""Nodes that are about to go: which signs say so, and to which pods they matter.  Pure.

Only signs of a removal that has begun count.  A cordon alone is none, as people cordon without draining; nor is
`DeletionCandidateOfClusterAutoscaler`, a mere candidate, nor a recommendation to rebalance, nor a node that is not
ready or unreachable: those come back, and if they do not, Kubernetes evicts their pods, which then say so themselves.
"""

from collections.abc import Collection

from services.watcher.core.observed import ObservedNode
from shared.cluster.objects import Node, Pod, Taint, Toleration

NODE_DELETED = "NodeDeleted"

CONFIGURED = "NodeTainted"
"""The reason of a taint that is no well-known one: an administrator said that it counts."""

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
"""Effects of taints; what PreferNoSchedule asks for is only a wish."""

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What a cordon is to kube-scheduler, even before the taint stands in the node."""

GONE = ObservedNode(reason=NODE_DELETED, gone=True)
"""A node that was deleted while pods were on it."""


def observed_node(node: Node, more: Collection[str] = ()) -> ObservedNode:
    """What matters of a node; of one that stays that is nothing.  `more` are taints that count besides."""
    reason = notice(node, more)
    if not reason:
        return ObservedNode()
    fences = tuple(taint for taint in node.spec.taints or () if taint.effect in KEEPS_OFF)
    return ObservedNode(reason=reason, fences=(*fences, CORDON) if node.spec.unschedulable else fences)


def notice(node: Node, more: Collection[str] = ()) -> str:
    """Why this node is about to go; empty when nothing says so.  `more` are taints that count besides."""
    if node.metadata.deletion_timestamp is not None:
        return NODE_DELETED
    keys = [taint.key for taint in node.spec.taints or ()]
    known = next((WELL_KNOWN[key] for key in keys if key in WELL_KNOWN), "")
    return known or (CONFIGURED if any(key in more for key in keys) else "")


def tolerations(pod: Pod) -> tuple[Toleration, ...]:
    """What a pod tolerates for good; not what Kubernetes lets every pod tolerate for five minutes."""
    return tuple(one for one in pod.spec.tolerations or () if one.toleration_seconds is None)


def leaves(node: ObservedNode, tolerated: Collection[Toleration]) -> bool:
    """Whether a pod with these tolerations is taken from a node that is about to go.

    One for which the node stays open is not: its replacement could be placed there again and again.  It leaves when
    the node is no more, or when it is evicted, of which it tells itself.
    """
    return node.gone or any(not any(_tolerates(one, fence) for one in tolerated) for fence in node.fences)


def _tolerates(one: Toleration, taint: Taint) -> bool:
    everything = one.operator == "Exists"
    return (
        (not one.effect or one.effect == taint.effect)
        and (one.key == taint.key or (not one.key and everything))
        and (everything or (one.value or "") == (taint.value or ""))
    )
