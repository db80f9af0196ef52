"""What an API server refuses, and how to bring it about: each situation ends with one answer of the real server."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import web

from devcluster.certificates import server_context
from shared.frameworks.rendezvous import RESOURCES
from shared.ports import HOST, free_port
from tests.devcluster.apiserver.client import BOUND, Answer, Client

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_OF_A_RUN = re.compile(r"(?<=127\.0\.0\.1:)\d+|[0-9a-f]{8}-[0-9a-f-]{27}")
"""Ports and uids."""

SELECTED = "kubernetes.io/metadata.name"


class Site:
    """A namespace of its own, and a webhook that says what it is told to."""

    def __init__(self, client: Client, authority: bytes, port: int) -> None:
        self.client = client
        self.namespace = f"refused-{uuid4().hex[:8]}"
        self.says: dict[str, Any] = {}
        self.patch: list[dict[str, Any]] = []
        self.code = 200
        self.seconds = 0.0
        self._authority = authority
        self._port = port

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    async def made(self, path: str, body: dict[str, Any]) -> None:
        answer = await self.client.create(path, body)
        assert answer.code == 201, answer

    async def begun(self) -> None:
        await self.made("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        await self.client.until(self.path("serviceaccounts", "default"), lambda answer: answer.code == 200)

    async def asked(self, pod: dict[str, Any] | None = None, query: str = "") -> Answer:
        return await self.client.create(self.path("pods") + query, pod or a_pod())

    async def refused(self, pod: dict[str, Any] | None = None, query: str = "") -> Answer:
        """The refusal, as soon as the server has heard of its reason; a dry run makes nothing until then."""
        async with asyncio.timeout(BOUND):
            while (answer := await self.asked(pod, f"?dryRun=All{query}")).code == 201:
                await asyncio.sleep(0.2)
        return answer

    async def policy(self, *, parameters: bool = False, **validation: str) -> None:
        """A policy for the pods of this namespace."""
        name, group = f"policy-{self.namespace}", {"apiGroups": [""], "apiVersions": ["v1"]}
        rules = [{**group, "operations": ["CREATE"], "resources": ["pods"]}]
        spec: dict[str, Any] = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "false", "message": "not in these hours"} | validation],
        }
        binding: dict[str, Any] = {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {SELECTED: self.namespace}}},
        }
        if parameters:
            spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
            binding["paramRef"] = {"name": "limits", "namespace": self.namespace, "parameterNotFoundAction": "Deny"}
        for plural, body in (("policies", spec), ("policybindings", binding)):
            await self.made(f"{ADMISSION}/validatingadmission{plural}", {"metadata": {"name": name}, "spec": body})

    async def webhook(
        self, client: dict[str, Any] | None = None, *, plural: str = "validating", seconds: int = 5
    ) -> None:
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
        mine = {"url": f"https://{HOST}:{self._port}/{self.namespace}", "caBundle": self._authority.decode()}
        hook = {
            "name": "hook.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": seconds,
            "clientConfig": client or mine,
            "rules": rules,
            "namespaceSelector": {"matchLabels": {SELECTED: self.namespace}},
        }
        path = f"{ADMISSION}/{plural}webhookconfigurations"
        await self.made(path, {"metadata": {"name": f"hook-{self.namespace}"}, "webhooks": [hook]})

    async def review(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.seconds)
        if self.code != 200:
            return web.Response(status=self.code, text="the hook is broken")
        uid = (await request.json())["request"]["uid"]
        said = {"uid": uid, "allowed": bool(self.patch), **({"status": self.says} if self.says else {})}
        if self.patch:
            said |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(self.patch).encode()).decode()}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": said})


def a_pod(name: str = "resnet-worker-0", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "train"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers} | spec}


def a_container(**fields: Any) -> dict[str, Any]:
    """A pod whose container has these fields."""
    return a_pod(containers=[{"name": "main", "image": "train"} | fields])


def by_policy(**validation: Any) -> Callable[[Site], Awaitable[Answer]]:
    async def come_about(site: Site) -> Answer:
        await site.policy(**validation)
        return await site.refused()

    return come_about


def by_webhook(**says: Any) -> Callable[[Site], Awaitable[Answer]]:
    async def come_about(site: Site) -> Answer:
        site.says = says
        await site.webhook()
        return await site.refused()

    return come_about


def for_the_pod(pod: dict[str, Any], query: str = "") -> Callable[[Site], Awaitable[Answer]]:
    async def come_about(site: Site) -> Answer:
        return await site.asked(pod, query)

    return come_about


def beside(plural: str, pod: dict[str, Any] | None = None, **of: Any) -> Callable[[Site], Awaitable[Answer]]:
    """The refusal for an object of the namespace."""

    async def come_about(site: Site) -> Answer:
        await site.made(site.path(plural), {"metadata": {"name": "small"}, **of})
        return await site.refused(pod)

    return come_about


async def no_webhook(site: Site) -> Answer:
    await site.webhook({"url": f"https://{HOST}:{free_port()}/"})
    return await site.refused()


async def no_service_of_a_webhook(site: Site) -> Answer:
    await site.webhook({"service": {"name": "hook", "namespace": site.namespace}}, plural="mutating")
    return await site.refused()


async def a_webhook_that_breaks_the_pod(site: Site) -> Answer:
    site.patch = [{"op": "add", "path": "/spec/containers/-", "value": {"name": "mesh", "image": ""}}]
    await site.webhook(plural="mutating")
    return await site.refused()


async def a_webhook_with_a_patch_for_another_pod(site: Site) -> Answer:
    site.patch = [{"op": "add", "path": "/spec/affinity/nodeAffinity", "value": {}}]
    await site.webhook(plural="mutating")
    return await site.refused()


async def a_slow_webhook(site: Site) -> Answer:
    site.seconds = 2.0
    await site.webhook(seconds=1)
    return await site.refused()


async def a_webhook_that_outlasts_the_deadline(site: Site) -> Answer:
    site.seconds = 5.0
    await site.webhook(seconds=10)
    answer = await site.refused(query="&timeout=1s")
    # The API server calls its answer a text then.
    return answer._replace(body=json.loads(answer.body))


async def a_broken_webhook(site: Site) -> Answer:
    site.code = 503
    await site.webhook()
    return await site.refused()


async def pod_security(site: Site) -> Answer:
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    assert (await site.client.merge(f"/api/v1/namespaces/{site.namespace}", labels)).code == 200
    return await site.refused()


async def a_namespace_that_goes(site: Site) -> Answer:
    kept = {"metadata": {"name": "kept", "finalizers": ["example.com/keep"]}}
    await site.made(site.path("configmaps"), kept)
    await site.client.delete(f"/api/v1/namespaces/{site.namespace}")
    answer = await site.refused()
    await site.client.merge(site.path("configmaps", "kept"), {"metadata": {"finalizers": None}})
    return answer


async def no_namespace(site: Site) -> Answer:
    return await site.client.create("/api/v1/namespaces/nowhere/pods", a_pod())


async def no_right(site: Site) -> Answer:
    return await site.client.call("POST", site.path("pods"), a_pod(), Impersonate_User="scheduler")


async def a_taken_name(site: Site) -> Answer:
    await site.asked()
    return await site.asked()


async def a_changed_field(site: Site) -> Answer:
    await site.asked()
    return await site.client.merge(site.path("pods", "resnet-worker-0"), {"spec": {"hostNetwork": True}})


async def a_changed_uid(site: Site) -> Answer:
    await site.asked()
    return await site.client.merge(site.path("pods", "resnet-worker-0"), {"metadata": {"uid": str(uuid4())}})


OF_CONTAINERS = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
MOST = a_container(resources={"limits": {"cpu": "2"}})
OF_LARGE_CONTAINERS = {"limits": [{"type": "Container", "min": {"cpu": "100m"}}]}
LEAST = a_container(resources=RESOURCES)
REQUESTING = a_container(resources={"requests": {"cpu": "2"}})

PODS = {
    "a LimitRange allows less": MOST,
    "a LimitRange asks for more": LEAST,
    "a LimitRange sets a limit below the request": REQUESTING,
    "a limit is below its request": a_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
}
"""What was sent, where it is not `a_pod()` and counts."""

STRICT = "?fieldValidation=Strict"

SITUATIONS: dict[str, Callable[[Site], Awaitable[Answer]]] = {
    "a policy denies": by_policy(),
    "a policy denies with Forbidden": by_policy(reason="Forbidden"),
    "a policy denies with RequestEntityTooLarge": by_policy(reason="RequestEntityTooLarge"),
    "a policy cannot be evaluated": by_policy(expression="object.metadata.labels['team'] == 'a'"),
    "a policy lacks its parameters": by_policy(parameters=True),
    "a webhook denies": by_webhook(),
    "a webhook denies with 400": by_webhook(code=400, reason="BadRequest", message="not today"),
    "a webhook denies with 401": by_webhook(code=401, reason="Unauthorized", message="not today"),
    "a webhook denies with 403": by_webhook(code=403, reason="Forbidden", message="not today"),
    "a webhook denies with 409": by_webhook(code=409, reason="Conflict", message="not today"),
    "a webhook denies with 410": by_webhook(code=410, reason="Gone", message="not today"),
    "a webhook denies with 422": by_webhook(
        code=422,
        reason="Invalid",
        message='Pod "resnet-worker-0" is invalid: spec.priority: Invalid value',
        details={"causes": [{"reason": "FieldValueInvalid", "message": "not today", "field": "spec.priority"}]},
    ),
    "a webhook denies with 429": by_webhook(code=429, reason="TooManyRequests", message="not today"),
    "a webhook denies with 500": by_webhook(code=500, reason="InternalError", message="not today"),
    "a webhook breaks the pod": a_webhook_that_breaks_the_pod,
    "a webhook's patch does not apply": a_webhook_with_a_patch_for_another_pod,
    "a webhook is down": no_webhook,
    "a webhook has no Service": no_service_of_a_webhook,
    "a webhook is slow": a_slow_webhook,
    "a webhook outlasts the deadline": a_webhook_that_outlasts_the_deadline,
    "a webhook is broken": a_broken_webhook,
    "the quota is used up": beside("resourcequotas", spec={"hard": {"pods": "0"}}),
    "the quota asks for limits": beside("resourcequotas", spec={"hard": {"limits.cpu": "1"}}),
    "a LimitRange allows less": beside("limitranges", MOST, spec=OF_CONTAINERS),
    "a LimitRange asks for more": beside("limitranges", LEAST, spec=OF_LARGE_CONTAINERS),
    "a LimitRange sets a limit below the request": beside("limitranges", REQUESTING, spec=OF_CONTAINERS),
    "Pod Security forbids it": pod_security,
    "a right is missing": no_right,
    "there is no PriorityClass": for_the_pod(a_pod(priorityClassName="urgent")),
    "there is no RuntimeClass": for_the_pod(a_pod(runtimeClassName="gvisor")),
    "there is no ServiceAccount": for_the_pod(a_pod(serviceAccountName="trainer")),
    "the namespace goes": a_namespace_that_goes,
    "there is no namespace": no_namespace,
    "the name is taken": a_taken_name,
    "a field is required": for_the_pod(a_container(image="")),
    "a field has a value that is not allowed": for_the_pod(a_pod(restartPolicy="Sometimes")),
    "a limit is below its request": for_the_pod(PODS["a limit is below its request"]),
    "a volume is missing": for_the_pod(a_container(volumeMounts=[{"name": "data", "mountPath": "/data"}])),
    "a field is not known": for_the_pod(a_container(resources={"limit": {"cpu": "1"}}), STRICT),
    "a field comes with others that are not known": for_the_pod(a_pod(nodeSelecter={}, affinities={}), STRICT),
    "a value has another type": for_the_pod(a_container(env=[{"name": "THREADS", "value": 1}])),
    "a value is no quantity": for_the_pod(a_container(resources={"limits": {"cpu": "much"}})),
    "a field does not change": a_changed_field,
    "a uid does not change": a_changed_uid,
}


@asynccontextmanager
async def sites(client: Client, folder: Path) -> AsyncIterator[Callable[[], Awaitable[Site]]]:
    """Makes sites, each of which has its webhook at a path of its own; certificates are in `folder`."""
    context, port = server_context(folder), free_port()
    authority = base64.b64encode((folder / "ca.crt").read_bytes())
    known: dict[str, Site] = {}

    async def review(request: web.Request) -> web.Response:
        return await known[request.match_info["site"]].review(request)

    app = web.Application()
    app.router.add_post("/{site}", review)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, HOST, port, ssl_context=context).start()

    async def begun() -> Site:
        site = Site(client, authority, port)
        known[site.namespace] = site
        await site.begun()
        return site

    try:
        yield begun
    finally:
        await runner.cleanup()


def as_recorded(answer: Answer, site: Site) -> dict[str, Any]:
    """The answer without what differs from one run to the next."""
    text = json.dumps(answer.body).replace(site.namespace, "team-a")
    recorded: dict[str, Any] = json.loads(_OF_A_RUN.sub("0", text))
    return recorded
