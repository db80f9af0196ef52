"""Who is let in, what the server says of itself, and what it says to nonsense."""

import io
import json
import random

import aiohttp
import pytest
import yaml

from devcluster.apiserver.call import Target, User, read_tokens
from devcluster.apiserver.server import Audit
from shared.cluster import Resource
from shared.cluster.objects import Custom
from tests.kit.definitions import a_definition, a_version, an_object, scaling

CONFIGS = "/api/v1/namespaces/default/configmaps"


async def test_a_stranger_gets_a_401_and_may_still_ask_for_health(api):
    for header in ("", "Bearer wrong", "Basic abc"):
        answer = await api.get(CONFIGS, Authorization=header)
        assert (answer.code, answer.body["reason"]) == (401, "Unauthorized")
    for path in ("/readyz", "/livez", "/healthz"):
        assert (await api.get(path, Authorization="")).body == b"ok"
    assert (await api.get("/version", Authorization="")).body["gitVersion"] == "v1.32.0+muster"


async def test_a_known_user_may_do_everything(api):
    review = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}
    answer = await api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (answer.code, answer.body["status"]["allowed"]) == (201, True)
    answer = await api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert answer.body["status"]["userInfo"]["username"] == "tester"
    assert answer.body["status"]["userInfo"]["groups"] == ["testers", "system:authenticated"]


async def test_a_token_of_a_pod_is_that_of_its_account_for_its_audience_while_the_pod_is_there(api):
    pod = {"metadata": {"name": "trainer"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    uid = (await api.create("/api/v1/namespaces/default/pods", pod)).body["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "trainer", "uid": uid}
    asked = {"spec": {"audiences": ["progress"], "expirationSeconds": 600, "boundObjectRef": bound}}
    answer = await api.create("/api/v1/namespaces/default/serviceaccounts/default/token", asked)
    assert answer.code == 201
    token = answer.body["status"]["token"]

    async def review(token: str, audience: str = "progress"):
        spec = {"token": token, "audiences": [audience]}
        return (await api.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})).body["status"]

    known = await review(token)
    assert (known["authenticated"], known["audiences"]) == (True, ["progress"])
    assert known["user"]["username"] == "system:serviceaccount:default:default"
    assert known["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [uid]
    claims, _, signature = token.partition(".")
    for wrong in ("", "x", claims, f"{claims}.{signature[::-1]}", f"{claims[:-4]}AAAA.{signature}", f"é.{signature}"):
        assert not (await review(wrong))["authenticated"]
    assert not (await review(token, "another"))["authenticated"]
    for spec in ({"token": token, "audiences": 5}, {"token": token, "audiences": "progress"}, {"token": 5}, "x"):
        wrong = await api.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})
        assert (wrong.code, wrong.body["reason"]) == (400, "BadRequest"), spec
    await api.delete("/api/v1/namespaces/default/pods/trainer")
    assert not (await review(token))["authenticated"]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"audiences": "progress"}, 400),
        ({"expirationSeconds": 599}, 400),
        ({"expirationSeconds": 10**18}, 400),
        ({"boundObjectRef": {"kind": "Secret", "name": "trainer"}}, 400),
        ({"boundObjectRef": {"kind": "Pod", "name": "another"}}, 404),
        ({"boundObjectRef": {"kind": "Pod", "name": "trainer", "uid": "another"}}, 409),
        ({"boundObjectRef": {"kind": "Pod", "name": "trainer"}}, 201),
        ({"audiences": None}, 201),
    ],
)
async def test_a_token_is_for_a_pod_that_is_there_and_for_a_time_in_range(api, spec, code):
    pod = {"metadata": {"name": "trainer"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    await api.create("/api/v1/namespaces/default/pods", pod)
    asked = await api.create("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": spec})
    assert asked.code == code


def test_a_token_file_is_that_of_the_real_server(tmp_path):
    file = tmp_path / "tokens.csv"
    file.write_text('abc,admin,1,"system:masters,others"\ndef,watcher,2,\n')
    assert read_tokens(file) == {"abc": User("admin", "1", ("system:masters", "others")), "def": User("watcher", "2")}


def test_the_audit_log_has_a_line_for_each_request(tmp_path):
    audit = Audit(tmp_path / "audit.jsonl")
    audit.record(user="watcher", verb="list", target=Target("", "v1", "pods", "team"), code=200)
    audit.close()
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert {name: line[name] for name in ("user", "verb", "resource", "namespace", "code")} == {
        "user": "watcher",
        "verb": "list",
        "resource": "pods",
        "namespace": "team",
        "code": 200,
    }


async def test_groups_and_kinds_are_discovered(api):
    groups = (await api.get("/apis")).body["groups"]
    assert "coordination.k8s.io" in [group["name"] for group in groups]
    listed = (await api.get("/api/v1")).body["resources"]
    assert {"pods", "pods/status", "pods/exec", "pods/log"} <= {one["name"] for one in listed}
    assert (await api.get("/apis/nothing.dev")).code == 404
    assert (await api.get("/apis/nothing.dev/v1")).code == 404


async def test_openapi_says_that_fields_are_validated_here(api):
    paths = (await api.get("/openapi/v3")).body["paths"]
    document = (await api.get(paths["api/v1"]["serverRelativeURL"])).body
    patch = document["paths"]["/api/v1/configmaps/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    # kubectl asks for it when it does not know a kind, and calls it a failed download otherwise.
    assert (await api.get("/openapi/v2")).code == 200


async def test_yaml_is_read_but_not_unfolded(api):
    config = {"metadata": {"name": "a"}, "data": {"b": "c"}}
    answer = await api.call("POST", CONFIGS, yaml.safe_dump(config).encode(), media="application/yaml")
    assert answer.body["data"] == {"b": "c"}
    bomb = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]"
    assert (await api.call("POST", CONFIGS, bomb, media="application/yaml")).code == 400


async def test_a_body_that_is_too_large_is_refused(api):
    async with api.session.post(api.url + CONFIGS, data=io.BytesIO(b" " * (4 * 1024 * 1024))) as answer:
        assert answer.status == 413


_FIELDS = {
    "n": {"type": "integer", "default": 1},
    "s": {"type": "string", "pattern": "^a"},
    "l": {"type": "array", "items": an_object({})},
}
DEFINITION = a_definition(
    Resource("example.dev", "v1", "things", "Thing", Custom),
    a_version(
        "v1",
        an_object(_FIELDS, **{"x-kubernetes-validations": [{"rule": "!has(self.n) || self.n < 5"}]}),
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        storage=True,
        subresources=scaling(".spec.n", ".status.n"),
        additionalPrinterColumns=[{"name": "N", "type": "integer", "jsonPath": ".spec.n"}],
    ),
)
OWNER = {"apiVersion": "v1", "kind": "Pod"}
CONTAINER = {"name": "c", "image": "i", "env": [{"name": "A"}], "resources": {"requests": {"cpu": "1"}}}
CONTAINER_STATUS = {"name": "c", "state": {}}
POD = {
    "metadata": {"name": "x", "labels": {"a": "b"}, "ownerReferences": [OWNER]},
    "spec": {"containers": [CONTAINER], "volumes": [{"name": "v", "configMap": {}}], "hostname": "a"},
    "status": {"phase": "Running", "conditions": [{"type": "Ready"}], "containerStatuses": [CONTAINER_STATUS]},
}
THING = {
    "metadata": {"name": "x", "finalizers": ["a.dev/b"]},
    "spec": {"n": 2, "s": "ab", "l": [{}]},
    "status": {"n": 1},
}
NODE = {"metadata": {"name": "x"}, "status": {"addresses": [{"type": "InternalIP"}], "allocatable": {"cpu": "1"}}}
EVENT = {"metadata": {"name": "x"}, "involvedObject": {"name": "a"}, "regarding": {}, "eventTime": "x", "series": {}}
SERVICE = {"metadata": {"name": "x"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}], "selector": {}}}
OPTIONS = {"preconditions": {"uid": "a"}, "gracePeriodSeconds": 1, "propagationPolicy": "Orphan"}
ADD = {"op": "add", "path": "/spec/n", "value": 1}
MOVE = {"op": "move", "from": "/spec", "path": "/metadata/labels"}
SAMPLES = (
    *(DEFINITION, POD, THING, NODE, EVENT, SERVICE, OPTIONS, [ADD, MOVE]),
    *({"target": {"name": "n"}}, {"deleteOptions": {}}, {"spec": {"replicas": 1}}),
)

JUNK = (
    *(None, 0, -1, 1.5, 10**30, "", "a" * 300, "\u0000", "é", True, [], {}, [[]], {"a": None}, [None], [5]),
    *({"name": 5}, {"$patch": "delete"}, {"$patch": 5}, [{"$patch": "replace"}], "../..", "a/b", {"type": []}),
)
SPACES = "/api/v1/namespaces/default"
PATHS = (
    *(f"{SPACES}/{kind}" for kind in ("pods", "configmaps", "services", "events", "secrets")),
    *("/api/v1/nodes", "/api/v1/namespaces", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    *("/apis/example.dev/v1/namespaces/default/things", "/apis/events.k8s.io/v1/namespaces/default/events"),
    *("/apis/coordination.k8s.io/v1/namespaces/default/leases", "/apis", "/openapi/v3/apis/x", "/openapi", "/a/b/c/d"),
    *("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
    *("/apis/authentication.k8s.io/v1/tokenreviews", "/api/v1/namespaces/default/serviceaccounts/x/token"),
)
TAILS = (
    *("", "", "/x", "/x", "/x", "/x/status", "/x/scale", "/x/eviction", "/x/log", "/x/exec"),
    *("/things.example.dev", "/%00", "/..", "/a%2Fb", "/x/y/z/w"),
)
QUERIES = (
    *("", "", "", "?labelSelector=%28", "?labelSelector=a%20in%20%28b", "?fieldSelector=a", "?limit=-1", "?limit=x"),
    *("?limit=1&continue=%25", "?continue=eyJhIjoxfQ", "?watch=1&resourceVersion=zz", "?watch=1&timeoutSeconds=x"),
    *("?resourceVersion=99999999999999999999", "?dryRun=All", "?dryRun=Some", "?fieldManager=f&force=true"),
    *("?gracePeriodSeconds=x", "?gracePeriodSeconds=-99999999999", "?propagationPolicy=Up", "?fieldValidation=Strict"),
    *("?resourceVersionMatch=Exact", "?watch=1&sendInitialEvents=true", "?container=x&tailLines=x", "?command=a"),
)
MEDIA = (
    *("application/json",) * 4,
    *(f"application/{kind}" for kind in ("merge-patch+json", "json-patch+json", "strategic-merge-patch+json")),
    *("application/apply-patch+yaml", "application/vnd.kubernetes.protobuf", "application/yaml", "x", ""),
)
ACCEPTS = (
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata",
)
RAW = (
    *(b"{", b"\xff\xfe", b"[" * 3000, b'{"a":' * 3000, b"k8s\0" + b"\x0a" * 9, b"&a [*a]", b'"\\ud800"', b"NaN"),
    *(b"- !!python/x", b"2001-01-01", b"? [a]\n: b"),
)


def mutated(dice, value):
    """`value` with something in it replaced by junk, here and there."""
    if dice.random() < 0.04:
        return dice.choice(JUNK)
    if isinstance(value, dict):
        return {name: mutated(dice, inner) for name, inner in value.items() if dice.random() > 0.03}
    return [mutated(dice, item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(4))
async def test_nonsense_is_the_clients_fault(api, seed):
    dice = random.Random(seed)
    await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    for _ in range(500):
        method = dice.choice(["GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS"])
        path = dice.choice(PATHS) + dice.choice(TAILS) + dice.choice(QUERIES)
        body = dice.choice(RAW) if dice.random() < 0.1 else mutated(dice, dice.choice(SAMPLES))
        if path.startswith("/api") and "watch=1" in path and "timeout" not in path:
            path += "&timeoutSeconds=1&resourceVersion=1"
        try:
            answer = await api.call(method, path, body, media=dice.choice(MEDIA), Accept=dice.choice(ACCEPTS))
        except aiohttp.ClientError as error:
            pytest.fail(f"{method} {path} {body!r}: {error!r}")
        assert answer.code < 500 or answer.code in (501, 503, 504), f"{method} {path} {body!r}: {answer}"
    # After all that, it still works.
    assert (await api.create(CONFIGS, {"metadata": {"name": "still-here"}})).code == 201
