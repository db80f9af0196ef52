"""Lost nodes: nodes that are not Ready or unreachable, with pods of the job on them.  Pure.

Whether such a pod still runs is unknown.  The node may come back within seconds, and the pod goes on.
A pod of an unreachable node that is also being deleted counts as gone: no kubelet says so.
"""

import msgspec

from shared.job.events.event import At

UNREACHABLE = "NodeUnreachable"
NOT_READY = "NodeNotReady"
"""Why a node is lost: its kubelet is silent, or says itself that the node is not ready."""

NEVER = -1
"""The value of `force_delete_after` of a job whose pods are never deleted by force."""


class LostNode(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod's lost node."""

    node: str
    reason: str
    """`NodeUnreachable` or `NodeNotReady`."""
    since: str
    """Since when the node is lost, by the API server."""
    at: At
    """The event by which this became known."""
    force_after: int | None = None
    """The setting at that time: the seconds after its grace period when a pod is deleted by force; None for never."""
    terminating: At | None = None
    """Since when the pod is also being deleted: only its kubelet could end that."""
