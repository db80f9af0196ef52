"""The kube-scheduler's part in gangs, as the real one plays it (`tests/e2e/test_gangs.py`)."""

from shared.cluster.kinds import PODS
from shared.frameworks.gangs import POD_GROUPS
from tests.memory.store import MemoryStore
from tests.memory.watching import Held

POD_GROUP = POD_GROUPS[0]


def waits(store: MemoryStore, held: Held, room: int | None = None) -> bool:
    """True while the kube-scheduler binds a pod to no node for the sake of its gang.

    It considers none before its PodGroup and as many pods as that says exist, and binds none while there is no room
    for so many beside those that have nodes, and none with another PriorityClass than its PodGroup's.
    """
    group = (held.manifest["spec"].get("schedulingGroup") or {}).get("podGroupName")
    if not group:
        return False
    found = store.get(POD_GROUP, held.at[0], group)
    if found is None:
        return True
    if held.manifest["spec"].get("priorityClassName") != found.manifest["spec"].get("priorityClassName"):
        return True
    least = found.manifest["spec"]["schedulingPolicy"]["gang"]["minCount"]
    alive = [pod for pod in store.find(PODS) if (pod.manifest.get("status") or {}).get("phase") not in _OVER]
    those = [pod for pod in alive if (pod.manifest["spec"].get("schedulingGroup") or {}).get("podGroupName") == group]
    bound = [pod for pod in those if pod.manifest["spec"].get("nodeName")]
    used = sum(bool(pod.manifest["spec"].get("nodeName")) for pod in alive)
    return len(those) < least or (room is not None and room - used < least - len(bound))


def others(store: MemoryStore, held: Held) -> list[Held]:
    """The pods of the same gang that have no node yet: all that find places are bound at once."""
    group = held.manifest["spec"].get("schedulingGroup")
    return [
        pod
        for pod in store.find(PODS, held.at[0])
        if group and pod.manifest["spec"].get("schedulingGroup") == group
        if pod.at != held.at and not (pod.manifest["spec"].get("nodeName") or pod.metadata.get("deletionTimestamp"))
    ]


_OVER = ("Succeeded", "Failed")
