"""Documents that use most fields of their kinds, with a secret where users put one."""

from tests.frameworks.documents import changed, scale_in, scale_out, training_job

SECRET = "s3cr3t"

FULL_JOB = changed(
    changed(
        changed(training_job(), "spec.slotsPerWorker", 2),
        "spec.etReplicaSpecs.launcher.template.metadata",
        {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    ),
    "spec.etReplicaSpecs.launcher.template.spec",
    {
        "containers": [
            {
                "name": "main",
                "image": "horovod",
                "env": [{"name": "TOKEN", "value": SECRET}],
                "volumeMounts": [{"name": "data", "mountPath": "/job/data"}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "dnsConfig": {"searches": ["example.com"]},
    },
)
FULL_IN = changed(scale_in(podNames=["a", "b"]), "spec.env", [{"name": "TOKEN", "value": SECRET}])
FULL_OUT = changed(changed(scale_out(), "spec.script", SECRET), "spec.timeout", 9)
