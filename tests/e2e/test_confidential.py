"""What users write in jobs and scripts stays there: canaries wherever a secret may stand, and a search for them.

The search finds what `docs/install.md` says is kept of a pod, and nothing else.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from muster.stack import SERVICES
from shared.cluster import Resource
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import HOSTS, NODE
from tests.kit.operator import SHELL, UNTIL_TOLD, WAITING_WORKER, Operator, a_job, a_request
from tests.kit.service import Service, a_service

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = [HOSTS[0], NODE]
"""What a container leaves behind is a kubelet's to tell."""

PYTORCHJOBS, TFJOBS = PYTORCHJOB.resource, TFJOB.resource
KINDS = (TRAININGJOBS, SCALEINS, SCALEOUTS, PYTORCHJOBS, TFJOBS)

CANARY = re.compile(r"canary0[a-z]+")
"""Letters and a digit: spelt the same in JSON, in a URL and in the base64 of a Secret."""

LAST_WORDS, MESSAGE, IMAGE, RESTART = "canary0lastwords", "canary0message", "canary0image", "canary0restart"
JOB_LABEL = "canary0joblabel"
"""What is kept: the end of a failed container's log, its termination message, what the kubelet says of an image, the
annotation whose change restarts the job, and the labels of the job, by which lists are selected.  No other is."""
SHOWN = {LAST_WORDS, MESSAGE, IMAGE}
"""What is kept and shown."""

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "secrets", "namespace": "default", "annotations": {"note": "canary0secretnote"}},
    "stringData": {"plain": "canary0secretdata"},
    "data": {"encoded": "canary0secretcod"},
}

SCRIPT = "echo canary0scriptout $TOKEN; echo canary0scripterr $TOKEN >&2; exit $CODE"
EARLY = "echo canary0early; head -c 3000 /dev/zero | tr '\\0' x; echo"
"""More than a kubelet keeps of what a failed container printed last."""

REPEATS = (
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "repeats"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "matchConditions": [{"name": "denied", "expression": "object.metadata.name.startsWith('denied-')"}],
            "validations": [
                {
                    "expression": "false",
                    "messageExpression": "'not with '"
                    " + object.spec.containers[0].env.filter(each, each.name == 'TOKEN')[0].value + ' and '"
                    " + object.metadata.annotations['note']",
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "repeats"},
        "spec": {"policyName": "repeats", "validationActions": ["Deny"]},
    },
)
"""A policy of a cluster that says why it denies a pod, in the pod's own words."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def owners(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Service]]:
    """A second replica of each service, which has the lease and tells all that it can."""
    folder, telling = tmp_path_factory.mktemp("owners"), {"MUSTER_LOG_LEVEL": "debug", "MUSTER_DRAIN": "PT1S"}
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(a_service(name, folder, operator.stack.environment(name) | telling))
            for name in SERVICES
        ]
        for service in found:
            await service.becomes(200)
        # They are started again, and wait in their turn.
        await operator.stack.stop_services()

        async def own() -> bool:
            return all([(await service.probed("readyz"))[1].get("owner") for service in found])

        await operator.until(own)
        await operator.apply(SECRET)
        yield found


def with_canaries(job: dict[str, Any]) -> dict[str, Any]:
    """The job, with a secret in each place that users have for one."""
    annotations = {"note": "canary0jobnote", "muster.dev/restart": RESTART}
    job["metadata"] |= {"labels": {"team": JOB_LABEL}, "annotations": annotations}
    roles = next(value for name, value in job["spec"].items() if name.endswith("ReplicaSpecs"))
    for role in roles.values():
        template = role["template"]
        template["metadata"] = {"labels": {"team": "canary0label"}, "annotations": {"note": "canary0note"}}
        (container,) = template["spec"]["containers"]
        of_secret = {"secretKeyRef": {"name": "secrets", "key": "plain"}}
        more = [{"name": "TOKEN", "value": "canary0env"}, {"name": "KEY", "valueFrom": of_secret}]
        container |= {"env": more, "command": [*container["command"], "canary0argument"]}
    return job


def a_training_job(name: str, script: str, **more: Any) -> dict[str, Any]:
    return with_canaries(a_job(name, script, **more))


def a_kubeflow_job(kind: str, container: str, script: str, **more: Any) -> dict[str, Any]:
    """One worker that is a line of shell and is not restarted; the job is called as the container."""
    main = {"name": container, "image": SHELL, "command": ["sh", "-c", script], **more}
    worker = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [main]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": container, "namespace": "default"},
        "spec": {f"{container}ReplicaSpecs".replace("tensorflow", "tf"): {"Worker": worker}},
    }
    return with_canaries(job)


def a_script(name: str, kind: str, wish: str, code: int = 0) -> dict[str, Any]:
    """A request whose script has a secret in its name and in its environment."""
    env = [{"name": "TOKEN", "value": "canary0scriptenv"}, {"name": "CODE", "value": str(code)}]
    return a_request(kind, name, "scripted", **{wish: {"count": 1}}, script="canary0script", env=env)


async def comes_to(operator: Operator, resource: Resource[Any], name: str, state: str) -> None:
    """Wait until the job has had this condition."""
    conditions: list[dict[str, Any]] = []

    async def there() -> bool:
        conditions[:] = (await operator.status(resource, name)).get("conditions", [])
        return any(known["type"] == state for known in conditions)

    await operator.until(there, lambda: f"{name} is not {state}: {conditions}")


async def shows(operator: Operator, name: str, words: str) -> None:
    """Wait until the job's status has these words."""
    status: dict[str, Any] = {}

    async def there() -> bool:
        nonlocal status
        status = await operator.status(TRAININGJOBS, name)
        return words in json.dumps(status)

    await operator.until(there, lambda: f"{words!r} is not in {status}")


def canaries(text: str) -> set[str]:
    return {*CANARY.findall(text)}


async def kept(operator: Operator, owners: list[Service]) -> dict[str, set[str]]:
    """The canaries in all that Muster keeps, shows and says, by where they are."""
    kinds = ",".join(f"{kind.plural}.{kind.group}" for kind in KINDS)
    objects = json.loads(await operator.kubectl("get", kinds, "-A", "-o", "json"))["items"]
    announced = json.loads(await operator.kubectl("get", "events", "-A", "-o", "json"))["items"]
    metrics = ""
    async with aiohttp.ClientSession() as session:
        for service in owners:
            async with session.get(f"http://127.0.0.1:{service.port}/metrics") as answer:
                metrics += await answer.text()
    assert "muster_jobs_created_total" in metrics
    lines = [service.child.log for service in owners] + [child.log for child in operator.stack.services.values()]
    files = [file for file in operator.stack.nats.directory.rglob("*") if file.is_file()]
    return {
        "log": canaries(str([(stored.subject, stored.basis, stored.body) for stored in await operator.log()])),
        "files of NATS": canaries("".join(file.read_text(errors="replace") for file in files)),
        "statuses": canaries(json.dumps([each.get("status") for each in objects])),
        "Kubernetes Events": canaries(
            json.dumps([each for each in announced if each.get("reportingComponent") == "muster.dev/status"])
        ),
        "metrics": canaries(metrics),
        "lines of the services": canaries("".join(log.read_text() for log in lines)),
    }


PROMISED = {
    "log": {*SHOWN, RESTART, JOB_LABEL},
    "files of NATS": {*SHOWN, RESTART, JOB_LABEL},
    "statuses": SHOWN,
    "Kubernetes Events": SHOWN,
    "metrics": set[str](),
    "lines of the services": set[str](),
}


async def leaves_what_is_promised(operator: Operator, owners: list[Service]) -> None:
    """Wait for all that is promised, and find nothing else."""
    found: dict[str, set[str]] = {}

    async def there() -> bool:
        nonlocal found
        found = await kept(operator, owners)
        return all(promised <= found[place] for place, promised in PROMISED.items())

    await operator.until(there, lambda: f"{found}, not {PROMISED}")
    assert found == PROMISED


async def test_jobs_and_scripts_leave_only_what_the_page_says(operator: Operator, owners: list[Service]):
    unpulled = WAITING_WORKER | {"image": f"missing/{IMAGE}:1", "imagePullPolicy": "Never"}
    in_a_file = f"echo canary0unread; echo {MESSAGE} > /dev/termination-log; exit 1"
    await operator.apply(
        a_training_job("scripted", f"printf '{SCRIPT}' > canary0script; {UNTIL_TOLD}"),
        a_training_job("fine", "echo canary0printed; echo canary0result > /dev/termination-log"),
        a_training_job("fails", f"{EARLY}; echo {LAST_WORDS}; exit 1"),
        a_training_job("unpulled", "", worker=unpulled),
        a_kubeflow_job("PyTorchJob", "pytorch", in_a_file),
        a_kubeflow_job("TFJob", "tensorflow", "echo canary0filed; exit 1", terminationMessagePolicy="File"),
    )
    await operator.phase("Running", TRAININGJOBS, "scripted")
    await operator.apply(a_script("grow", "ScaleOut", "toAdd"))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "grow")
    await operator.apply(a_script("shrink", "ScaleIn", "toDelete", code=3))
    failed = await operator.phase("ScaleFailed", SCALEINS, "shrink")
    assert failed["conditions"][-1]["message"] == "the script exited with 3"
    await comes_to(operator, TRAININGJOBS, "fine", "Succeeded")
    await comes_to(operator, TRAININGJOBS, "fails", "Failed")
    await comes_to(operator, PYTORCHJOBS, "pytorch", "Failed")
    await comes_to(operator, TFJOBS, "tensorflow", "Failed")
    await shows(operator, "unpulled", IMAGE)
    await leaves_what_is_promised(operator, owners)


async def test_a_pod_that_is_refused_in_its_own_words_leaves_none_of_them(operator: Operator, owners: list[Service]):
    if "validatingadmissionpolicies" not in await operator.kubectl("api-resources", "-o", "name"):
        pytest.skip("this API server has no admission policies")
    await operator.apply(*REPEATS)

    async def in_force() -> bool:
        # An API server reads its policies anew each second.
        with suppress(AssertionError):
            await operator.kubectl("run", "denied-probe", "--image=none", "--dry-run=server", fails=True)
            return True
        return False

    await operator.until(in_force, lambda: "the policy is not in force")
    await operator.apply(a_training_job("denied", ""))
    await shows(operator, "denied", "not with [withheld] and [withheld]")
    await leaves_what_is_promised(operator, owners)


async def test_a_script_that_reaches_no_kubelet_leaves_none_of_its_words(operator: Operator, owners: list[Service]):
    nodes = getattr(operator.stack.cluster, "nodes", [])
    if not nodes:
        pytest.skip("this node's kubelet is not ours to stop")
    nodes[0].kill()
    await operator.apply(a_script("unreached", "ScaleIn", "toDelete"))
    await operator.phase("ScaleFailed", SCALEINS, "unreached")
    await leaves_what_is_promised(operator, owners)
    nodes[0].start()
