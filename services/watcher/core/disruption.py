"""Nodes that are about to be removed, nodes that are lost, and the pods that they concern.  Pure.

Only a removal that has begun is announced.  A cordon alone is none, as people cordon without draining; nor is
`DeletionCandidateOfClusterAutoscaler`, nor a recommendation to rebalance.  A lost node, not Ready or unreachable, may
come back; otherwise Kubernetes evicts its pods, which get a condition.
"""

from collections.abc import Collection

from services.watcher.core.observed import ObservedNode
from shared.cluster.objects import Node, Pod, Taint, Toleration
from shared.job.attempt import NOT_READY, UNREACHABLE

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

NOTICE_SECONDS = {
    # AWS tells two minutes before it takes a spot machine back.
    "SpotInterruption": 120,
    # Google and Azure tell 30 seconds before.
    "NodeTerminating": 30,
    # These have gone, or go with their pods at once.
    NODE_DELETED: 0,
    "NodeOutOfService": 0,
    "NodeShutdown": 0,
}
"""Seconds from a notice to the removal of the node, where these are known."""

DEFAULT_NOTICE_SECONDS = 30
"""The same for other notices."""

NOT_READY_TAINT, UNREACHABLE_TAINT = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
"""The taints of the node lifecycle controller; the condition Ready changes a moment before."""

GONE = ObservedNode(reason=NODE_DELETED, gone=True)
"""A node that was deleted while pods were on it."""


def observed_node(
    node: Node, more: Collection[str] = (), *, notice_seconds: int = DEFAULT_NOTICE_SECONDS
) -> ObservedNode:
    """The node reduced to its announced removal and its loss.

    `more` are configured taints; `notice_seconds` counts where the length of a notice is not known.
    """
    reason, (lost, since) = notice(node, more), loss(node)
    if not reason:
        return ObservedNode(lost=lost, since=since)
    taints = tuple(taint for taint in node.spec.taints or () if taint.effect in KEEPS_OFF)
    return ObservedNode(
        reason=reason,
        taints=(*taints, CORDON) if node.spec.unschedulable else taints,
        notice=NOTICE_SECONDS.get(reason, notice_seconds),
        lost=lost,
        since=since,
    )


def loss(node: Node) -> tuple[str, str]:
    """Why and since when the node is lost, by its condition Ready or its taints; empty words while it is Ready.

    A node without that condition has just registered.
    """
    ready = next((known for known in node.status.conditions or () if known.type == "Ready"), None)
    status, since = (ready.status, ready.last_transition_time or "") if ready is not None else ("True", "")
    keys = {taint.key for taint in node.spec.taints or ()}
    if status == "Unknown" or UNREACHABLE_TAINT in keys:
        return UNREACHABLE, since
    if status == "False" or NOT_READY_TAINT in keys:
        return NOT_READY, since
    return "", ""


def lost_by_pod(pod: Pod) -> str:
    """Why a pod's node is lost, as the pod itself shows it, for a watcher that may not see nodes; empty if it does not.

    The node lifecycle controller makes the pods of a lost node not Ready and gives no reason.  A kubelet gives one, and
    one that runs would make them Ready again.
    """
    if pod.status.reason == "NodeLost":
        return UNREACHABLE
    conditions = {known.type: known for known in pod.status.conditions or ()}
    ready, containers = conditions.get("Ready"), conditions.get("ContainersReady")
    if ready is None or ready.status != "False":
        return ""
    silent = not ready.reason and containers is not None and containers.status == "True"
    return UNREACHABLE if silent or ready.reason == NOT_READY else ""


def notice(node: Node, more: Collection[str] = ()) -> str:
    """Why this node is about to be removed; empty if nothing announces that.  `more` are configured taints.

    Of several notices it is the shortest of those whose length is known.
    """
    if node.metadata.deletion_timestamp is not None:
        return NODE_DELETED
    keys = [taint.key for taint in node.spec.taints or ()]
    known = [WELL_KNOWN[key] for key in keys if key in WELL_KNOWN]
    measured = [reason for reason in known if reason in NOTICE_SECONDS]
    if measured:
        return min(measured, key=NOTICE_SECONDS.__getitem__)
    return next(iter(known), CONFIGURED if any(key in more for key in keys) else "")


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
