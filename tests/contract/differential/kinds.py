"""The kinds that sequences are about: an object of each to start from, and changes that are right, odd or wrong.

A change is a merge patch.  Most are valid; the others are the mistakes that people and clients make.  Of built-in kinds
these are only the mistakes that the embedded server refuses too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.kit.gadgets import GADGETS

Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Kind:
    group: str
    version: str
    plural: str
    kind: str
    base: Json
    changes: Sequence[Json]
    status: Sequence[Json] = ()
    """Changes for the status subresource; a kind without any has none."""
    fields: Sequence[str] = ()
    """Field selectors."""
    operations: Sequence[Sequence[Json]] = ()
    """JSON patches."""
    scales: bool = False
    custom: bool = False
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/{namespace}/{self.plural}"


GADGET = Kind(
    GADGETS.group,
    GADGETS.version,
    GADGETS.plural,
    GADGETS.kind,
    base={"spec": {"colour": "red"}},
    changes=[
        {"spec": {"size": 5}},
        {"spec": {"size": 6}},
        {"spec": {"size": None}},
        {"spec": {"size": 0}},
        {"spec": {"size": 1000}},
        {"spec": {"low": "5"}},
        {"spec": {"low": 2.5}},
        {"spec": {"low": 5.0}},
        {"spec": {"low": True}},
        {"spec": {"colour": "blue"}},
        {"spec": {"colour": "puce"}},
        {"spec": {"colour": None}},
        {"spec": {"colour": 7}},
        {"spec": {"note": "short"}},
        {"spec": {"note": "much too long"}},
        {"spec": {"note": ""}},
        {"spec": {"code": "ab"}},
        {"spec": {"code": "AB1"}},
        {"spec": {"port": 80}},
        {"spec": {"port": "http"}},
        {"spec": {"port": 1.5}},
        {"spec": {"port": {"a": 1}}},
        {"spec": {"parts": [{"name": "a"}, {"name": "b", "count": 2}]}},
        {"spec": {"parts": [{"name": "a", "count": 9}]}},
        {"spec": {"parts": [{"name": "a"}, {"name": "a"}]}},
        {"spec": {"parts": [{"count": 2}]}},
        {"spec": {"parts": []}},
        {"spec": {"parts": "a"}},
        {"spec": {"parts": ["a"]}},
        {"spec": {"tags": ["x", "y"]}},
        {"spec": {"tags": ["x", "x"]}},
        {"spec": {"tags": ["1", "2", "3", "4", "5"]}},
        {"spec": {"tags": [None]}},
        {"spec": {"nested": {"deep": True, "unknown": 1}}},
        {"spec": {"nested": {"free": {"any": [1, {"a": None}]}}}},
        {"spec": {"nested": {"deep": "true"}}},
        {"spec": {"nested": []}},
        {"spec": {"marks": {"a": "b"}}},
        {"spec": {"marks": {"a": 1}}},
        {"spec": {"low": 1, "high": 5}},
        {"spec": {"low": 6, "high": 5}},
        {"spec": {"low": 4}},
        {"spec": {"fixed": "one"}},
        {"spec": {"fixed": "two"}},
        {"spec": {"forbidden": "word"}},
        {"spec": {"when": "2026-01-02T03:04:05Z"}},
        {"spec": {"when": "yesterday"}},
        {"spec": {"unknown": {"a": 1}}},
        {"unknown": True},
        {"spec": None},
        {"spec": []},
        {"spec": "text"},
        {"status": {"phase": "Forged"}},
    ],
    status=[
        {"status": {"phase": "Running", "replicas": 2}},
        {"status": {"phase": "Done", "conditions": [{"type": "Ready", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]}},
        {"status": {"conditions": [{"type": "Ready"}]}},
        {"status": {"sequence": "two"}},
        {"status": {"unknown": 1}},
        {"status": {"sequence": 5}},
        {"status": {"sequence": 4}},
        {"status": {"phase": None}},
        {"status": None},
        {"status": {"phase": "Both"}, "spec": {"size": 77}},
        {"status": {"phase": "Both"}, "spec": {"size": 0}},
        {"status": {"phase": "Labelled"}, "metadata": {"labels": {"from": "status"}}},
        {"status": {"phase": "Noted"}, "metadata": {"annotations": {"from": "status"}, "finalizers": ["test.dev/x"]}},
    ],
    operations=[
        [{"op": "replace", "path": "/spec/size", "value": 7}],
        [{"op": "add", "path": "/spec/tags", "value": ["p"]}],
        [{"op": "add", "path": "/spec/tags/-", "value": "q"}],
        [{"op": "add", "path": "/spec/tags/9", "value": "q"}],
        [{"op": "remove", "path": "/spec/tags"}],
        [{"op": "remove", "path": "/spec/colour"}, {"op": "add", "path": "/spec/colour", "value": "green"}],
        [{"op": "test", "path": "/spec/colour", "value": "red"}, {"op": "replace", "path": "/spec/size", "value": 8}],
        [{"op": "test", "path": "/spec/absent", "value": 1}],
        [{"op": "replace", "path": "/spec/absent/deeper", "value": 1}],
        [{"op": "copy", "from": "/spec/colour", "path": "/metadata/annotations/colour"}],
        [{"op": "move", "from": "/spec/colour", "path": "/spec/note"}],
        [{"op": "replace", "path": "/spec", "value": {"size": 4}}],
        [{"op": "add", "path": "/status", "value": {"phase": "Forged"}}],
        [{"op": "replace", "path": "/metadata/name", "value": "other"}],
        [{"op": "replace", "path": "/metadata/uid", "value": "other"}],
        [{"op": "remove", "path": "/metadata/labels"}],
    ],
    scales=True,
    custom=True,
)

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "train", "env": [{"name": "A", "value": "b"}]}]}}

TRAINING_JOB = Kind(
    "kai.alibabacloud.com",
    "v1alpha1",
    "trainingjobs",
    "TrainingJob",
    base={
        "spec": {
            "etReplicaSpecs": {"launcher": {"template": TEMPLATE}, "worker": {"replicas": 2, "template": TEMPLATE}}
        }
    },
    changes=[
        {"spec": {"etReplicaSpecs": {"worker": {"replicas": 3}}}},
        {"spec": {"etReplicaSpecs": {"worker": {"replicas": 0}}}},
        {"spec": {"etReplicaSpecs": {"worker": {"replicas": 8000}}}},
        {"spec": {"etReplicaSpecs": {"worker": {"minReplicas": 3}}}},
        {"spec": {"etReplicaSpecs": {"worker": {"minReplicas": 1, "maxReplicas": 4}}}},
        {"spec": {"etReplicaSpecs": {"worker": {"maxReplicas": 1}}}},
        {"spec": {"etReplicaSpecs": {"worker": {"maxReplicas": 2147483648}}}},
        {"spec": {"etReplicaSpecs": {"worker": None}}},
        {"spec": {"etReplicaSpecs": {"worker": {"template": {"spec": {"containers": []}}}}}},
        {
            "spec": {
                "etReplicaSpecs": {"worker": {"template": {"spec": {"containers": [{"name": "Main", "image": ""}]}}}}
            }
        },
        {"spec": {"etReplicaSpecs": {"worker": {"template": {"spec": {"hostNetwork": True}, "extra": 1}}}}},
        {"spec": {"etReplicaSpecs": {"worker": {"template": {"metadata": {"labels": {"a": 1}}}}}}},
        {"spec": {"etReplicaSpecs": {"worker": {"template": {"metadata": {"labels": {"a": "b"}, "name": "x"}}}}}},
        {"spec": {"etReplicaSpecs": {"launcher": {"replicas": 2}}}},
        {"spec": {"launcherAttachMode": "ssh"}},
        {"spec": {"launcherAttachMode": "kubexec"}},
        {"spec": {"launcherAttachMode": "mpi"}},
        {"spec": {"cleanPodPolicy": "All", "backoffLimit": 3}},
        {"spec": {"cleanPodPolicy": "Some", "backoffLimit": -1}},
        {"spec": {"suspend": True}},
        {"spec": {"suspend": "true"}},
        {"spec": {"slotsPerWorker": 4, "unknown": 1}},
        {"spec": {"etReplicaSpecs": None}},
        {"spec": None},
    ],
    status=[
        {"status": {"phase": "Running", "history": {"log": "one", "sequence": 5, "hash": "a"}}},
        {"status": {"phase": "Late", "history": {"log": "one", "sequence": 4, "hash": "b"}}},
        {"status": {"phase": "Other", "history": {"log": "two", "sequence": 1, "hash": "c"}}},
        {"status": {"history": {"log": "one"}}},
        {"status": {"history": {"log": "one", "sequence": -1, "hash": ""}}},
        {"status": {"conditions": [{"type": "Running", "status": "True", "reason": "All"}]}},
        {"status": {"conditions": [{"type": "Running", "status": "Yes"}]}},
        {"status": {"replicaStatuses": {"Worker": {"active": 2, "more": 1}}}},
        {"status": {"replicaStatuses": {"Worker": {"active": -2}}}},
        {"status": {"startTime": "2026-01-02T03:04:05Z", "restartCount": 1}},
        {"status": {"startTime": "soon"}},
        {"status": None},
    ],
    operations=[
        [{"op": "replace", "path": "/spec/etReplicaSpecs/worker/replicas", "value": 4}],
        [{"op": "add", "path": "/spec/suspend", "value": True}],
        [{"op": "remove", "path": "/spec/etReplicaSpecs/launcher"}],
    ],
    custom=True,
)

SCALE_IN = Kind(
    "kai.alibabacloud.com",
    "v1alpha1",
    "scaleins",
    "ScaleIn",
    base={"spec": {"selector": {"name": "job"}, "toDelete": {"count": 1}}},
    changes=[
        {"spec": {"toDelete": {"count": 2}}},
        {"spec": {"toDelete": {"podNames": ["job-worker-0"]}}},
        {"spec": {"toDelete": {"count": None, "podNames": ["job-worker-0"]}}},
        {"spec": {"toDelete": {"count": None, "podNames": ["a", "a"]}}},
        {"spec": {"toDelete": {"count": None}}},
        {"spec": {"selector": {"name": ""}}},
        {"spec": {"timeout": 0}},
        {"spec": {"env": [{"name": "A=B"}]}},
        {"spec": {"env": [{"value": "b"}]}},
        {"spec": None},
    ],
    status=[{"status": {"phase": "Running"}}, {"status": {"phase": "ScaleSucceeded"}}, {"status": None}],
    custom=True,
)

CONFIG_MAP = Kind(
    "",
    "v1",
    "configmaps",
    "ConfigMap",
    base={"data": {"key": "value"}},
    changes=[
        {"data": {"key": "other"}},
        {"data": {"second": "2"}},
        {"data": {"key": None}},
        {"data": {"number": 5}},
        {"data": {"nothing": ""}},
        {"data": None},
        {"data": []},
        {"binaryData": {"blob": "aGk="}},
        {"binaryData": {"blob": "!"}},
    ],
    operations=[
        [{"op": "replace", "path": "/data/key", "value": "patched"}],
        [{"op": "remove", "path": "/data/absent"}],
        [{"op": "test", "path": "/data/key", "value": "value"}, {"op": "add", "path": "/data/more", "value": "m"}],
        [{"op": "add", "path": "/data", "value": {"only": "this"}}],
        [{"op": "nonsense", "path": "/data"}],
    ],
)

SECRET = Kind(
    "",
    "v1",
    "secrets",
    "Secret",
    base={"data": {"key": "dmFsdWU="}},
    changes=[
        {"data": {"key": "b3RoZXI="}},
        {"data": {"key": "!"}},
        {"stringData": {"key": "plain", "more": "text"}},
        {"data": None},
    ],
    fields=["type=Opaque"],
)

POD = Kind(
    "",
    "v1",
    "pods",
    "Pod",
    base={
        "spec": {
            # No scheduler binds it, and no admission plugin adds a volume with a token.
            "schedulerName": "nobody",
            "serviceAccountName": "default",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "train:1"}],
        }
    },
    changes=[
        {"spec": {"nodeName": "node-1"}},
        {"spec": {"nodeName": "node-1", "terminationGracePeriodSeconds": 5}},
        {"spec": {"nodeName": "node-1", "terminationGracePeriodSeconds": 0}},
        {"spec": {"restartPolicy": "Never"}},
        {"spec": {"restartPolicy": "Sometimes"}},
        {"spec": {"containers": []}},
        {"spec": {"containers": [{"name": "main", "image": "train:2"}]}},
        {"spec": {"containers": [{"name": "main", "image": "train"}]}},
        {"spec": {"containers": [{"name": "Main", "image": "train:1"}]}},
        {"spec": {"containers": [{"name": "main", "image": "train:1"}, {"name": "main", "image": "train:1"}]}},
        {"spec": {"containers": [{"image": "train:1"}]}},
        {"spec": {"containers": [{"name": "main", "image": "train:1", "command": ["sh"], "args": ["-c", "true"]}]}},
        {"spec": {"containers": [{"name": "main", "image": "train:1", "env": [{"name": "A", "value": "b"}]}]}},
        {"spec": {"containers": [{"name": "main", "image": "train:1", "ports": [{"containerPort": 80}]}]}},
        {
            "spec": {
                "containers": [{"name": "main", "image": "train:1", "resources": {"limits": {"cpu": "500m"}}}],
            }
        },
        {
            "spec": {
                "containers": [
                    {"name": "main", "image": "train:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
                ],
                "volumes": [{"name": "v", "configMap": {"name": "c"}}],
            }
        },
        {
            "spec": {
                "containers": [
                    {"name": "main", "image": "train:1", "volumeMounts": [{"name": "w", "mountPath": "/v"}]}
                ],
                "volumes": [{"name": "v", "emptyDir": {}}],
            }
        },
        {"spec": {"hostname": "worker-0", "subdomain": "job"}},
        {"spec": {"hostname": "Worker_0"}},
        {"spec": {"terminationGracePeriodSeconds": -1}},
        {"spec": {"activeDeadlineSeconds": 100}},
        {"spec": {"nodeSelector": {"a": "b"}}},
        {"status": {"phase": "Running"}},
    ],
    status=[
        {"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}},
        {"status": {"phase": "Succeeded"}},
        {"status": {"phase": "Failed", "reason": "Evicted", "message": "gone"}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "name": "main",
                        "ready": True,
                        "restartCount": 0,
                        "image": "train:1",
                        "imageID": "",
                        "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
                    }
                ],
            }
        },
        {"status": {"phase": "Running"}, "metadata": {"labels": {"from": "status"}}},
        {"status": {"phase": "Running"}, "spec": {"nodeName": "node-9"}},
        {"status": {"phase": 5}},
    ],
    fields=["status.phase=Pending", "status.phase!=Pending", "spec.nodeName=node-1", "spec.restartPolicy=Never"],
    operations=[
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "train:3"}],
        [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}],
        [{"op": "replace", "path": "/spec/restartPolicy", "value": "OnFailure"}],
    ],
)

SERVICE = Kind(
    "",
    "v1",
    "services",
    "Service",
    base={"spec": {"clusterIP": "None", "selector": {"app": "x"}}},
    changes=[
        {"spec": {"ports": [{"port": 80}]}},
        {"spec": {"ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443, "targetPort": "tls"}]}},
        {"spec": {"publishNotReadyAddresses": True}},
        {"spec": {"selector": {"app": "y"}}},
        {"spec": {"selector": None}},
    ],
    status=[{"status": {"loadBalancer": {}}}, {"status": {"loadBalancer": {}}, "metadata": {"labels": {"a": "b"}}}],
    fields=["spec.type=ClusterIP"],
    operations=[[{"op": "replace", "path": "/spec/selector/app", "value": "z"}]],
)

EVENT = Kind(
    "events.k8s.io",
    "v1",
    "events",
    "Event",
    base={
        "action": "Run",
        "reason": "Started",
        "type": "Normal",
        "note": "It began.",
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "test.dev/tester",
        "reportingInstance": "tester-0",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "<namespace>"},
    },
    changes=[
        {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}},
    ],
    fields=["reason=Started", "type=Warning", "regarding.kind=Pod"],
)

LEASE = Kind(
    "coordination.k8s.io",
    "v1",
    "leases",
    "Lease",
    base={"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    changes=[
        {"spec": {"holderIdentity": "you"}},
        {"spec": {"renewTime": "2026-01-02T03:04:05.000006Z"}},
        {"spec": None},
    ],
)

KINDS = (GADGET, TRAINING_JOB, SCALE_IN, CONFIG_MAP, SECRET, POD, SERVICE, EVENT, LEASE)
WEIGHTS = (6, 4, 1, 3, 1, 4, 2, 1, 1)
BY_PLURAL = {kind.plural: kind for kind in KINDS}
