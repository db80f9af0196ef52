"""Audit events as kube-apiserver 1.36 sends them to a webhook."""

from typing import Any

import msgspec

GROUP = "kai.alibabacloud.com"


def an_event(
    verb: str = "patch",
    *,
    uid: str = "uid-1",
    version: int = 40,
    user: str = "alice",
    audit: str = "audit-1",
    code: int = 200,
    changed: bool = True,
    **more: Any,
) -> dict[str, Any]:
    note = f"audit.muster.muster.dev/muster-{'changed' if changed else 'unchanged'}"
    found = {
        "level": "RequestResponse",
        "auditID": audit,
        "stage": "ResponseComplete",
        "requestURI": f"/apis/{GROUP}/v1alpha1/namespaces/team-a/trainingjobs/resnet",
        "verb": verb,
        "user": {"username": user, "groups": ["team-a", "system:authenticated"]},
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "kubectl/v1.36.2 (linux/amd64)",
        "objectRef": {"resource": "trainingjobs", "namespace": "team-a", "name": "resnet", "apiGroup": GROUP},
        "responseStatus": {"metadata": {}, "code": code},
        "responseObject": {
            "kind": "TrainingJob",
            "metadata": {"name": "resnet", "uid": uid, "resourceVersion": str(version)},
            "spec": {"etReplicaSpecs": {}},
        },
        "annotations": {"authorization.k8s.io/decision": "allow", note: "yes"},
    }
    return {**found, **more}


def a_list(*events: Any) -> bytes:
    return msgspec.json.encode({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": events})
