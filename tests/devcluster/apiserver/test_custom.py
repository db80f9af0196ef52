"""What a definition makes the server enforce; `tests/contract` compares much more with the real server."""

import copy

import pytest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = "/apis/example.dev/v1/namespaces/default/trainjobs"

SPEC = {
    "type": "object",
    "required": ["workers"],
    "properties": {
        "workers": {
            "type": "object",
            "required": ["replicas"],
            "x-kubernetes-validations": [
                {"rule": "self.replicas <= self.maxReplicas", "message": "replicas may not exceed maxReplicas"}
            ],
            "properties": {
                "replicas": {"type": "integer", "minimum": 0},
                "maxReplicas": {"type": "integer", "default": 8},
            },
        },
        "policy": {"type": "string", "enum": ["None", "Running"], "default": "Running"},
        "port": {"x-kubernetes-int-or-string": True},
        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SCHEMA = {
    "type": "object",
    "x-kubernetes-validations": [{"rule": "self.metadata.name.size() <= 20"}],
    "properties": {
        "spec": SPEC,
        "status": {
            "type": "object",
            "properties": {"phase": {"type": "string"}},
        },
    },
}


def a_definition(**version):
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": copy.deepcopy(SCHEMA)},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trainjobs.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "trainjobs", "kind": "TrainJob", "shortNames": ["tj"]},
            "versions": [served | version],
        },
    }


def a_job(name="mnist", replicas=2, **spec):
    return {
        "apiVersion": "example.dev/v1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"workers": {"replicas": replicas}} | spec,
    }


@pytest.fixture
async def jobs(api):
    assert (await api.create(DEFINITIONS, a_definition())).code == 201
    return api


@pytest.mark.parametrize("where", ["workers", "template"])
async def test_a_number_beyond_64_bits_is_an_answer_and_no_crash(jobs, where):
    answer = await jobs.create(JOBS, a_job() | {"spec": {"workers": {"replicas": 2}, where: {"replicas": 10**19}}})
    assert answer.code == (422 if where == "workers" else 201)


async def test_a_rule_at_the_root_sees_the_name(jobs):
    answer = await jobs.create(JOBS, a_job("a-name-of-more-than-20"))
    assert answer.body["message"].endswith("<nil>: Invalid value: failed rule: self.metadata.name.size() <= 20")


async def test_a_schema_may_limit_the_name(api):
    schema = {"type": "object", "properties": {"metadata": {"type": "object", "properties": {}}}}
    schema["properties"]["metadata"]["properties"]["name"] = {"type": "string", "maxLength": 5}
    await api.create(DEFINITIONS, a_definition(schema={"openAPIV3Schema": schema}))
    assert (await api.create(JOBS, a_job("short"))).code == 201
    assert (await api.create(JOBS, a_job("longer"))).fields == ["metadata.name"]


async def test_what_became_invalid_may_stay_as_it_is(jobs):
    await jobs.create(JOBS, a_job(replicas=5))
    tighter = a_definition()
    workers = tighter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["workers"]
    workers["properties"]["replicas"]["maximum"] = 3
    assert (await jobs.merge(f"{DEFINITIONS}/trainjobs.example.dev", {"spec": tighter["spec"]})).code == 200
    assert (await jobs.merge(f"{JOBS}/mnist/status", {"status": {"phase": "Running"}})).code == 200
    assert (await jobs.merge(f"{JOBS}/mnist", {"spec": {"workers": {"replicas": 4}}})).code == 422


async def test_resources_go_with_their_definition(jobs):
    job = a_job()
    job["metadata"]["finalizers"] = ["example.dev/hold"]
    await jobs.create(JOBS, job)
    await jobs.create(JOBS, a_job("other"))
    await jobs.delete(f"{DEFINITIONS}/trainjobs.example.dev")
    await jobs.until(f"{JOBS}/other", lambda answer: answer.code == 404)
    # One resource is held, and so is its definition; nothing new may come.
    assert (await jobs.get(f"{JOBS}/mnist")).code == 200
    assert (await jobs.create(JOBS, a_job("late"))).code == 405
    await jobs.merge(f"{JOBS}/mnist", {"metadata": {"finalizers": None}})
    await jobs.until(f"{DEFINITIONS}/trainjobs.example.dev", lambda answer: answer.code == 404)
    assert (await jobs.get(JOBS)).code == 404


async def test_a_rule_that_is_no_cel_is_refused(api):
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "self.("}]}
    [field] = (await api.create(DEFINITIONS, a_definition(schema={"openAPIV3Schema": schema}))).fields
    assert field == "spec.versions[0].schema.openAPIV3Schema.x-kubernetes-validations[0].rule"


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object", "properties": 5}, id="properties that are none"),
        pytest.param({"type": "object", "properties": {"a": {"type": 5}}}, id="a type that is none"),
        pytest.param({"type": "object", "x-kubernetes-validations": [{"message": "m"}]}, id="a rule without a rule"),
    ],
)
async def test_a_schema_that_cannot_be_read_is_a_bad_request(api, schema):
    answer = await api.create(DEFINITIONS, a_definition(schema={"openAPIV3Schema": schema}))
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_a_definition_is_named_after_what_it_defines(api):
    definition = a_definition()
    definition["metadata"]["name"] = "jobs.example.dev"
    assert (await api.create(DEFINITIONS, definition)).fields == ["metadata.name"]
