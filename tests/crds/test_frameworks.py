"""Definitions of frameworks: made from what each says of its kind, and judged as our own are."""

import copy
from typing import Any

import pytest
import yaml

from muster.crds import manifests, render
from tests.crds.admission import KINDS
from tests.crds.judges import Judge
from tests.crds.structural_rules import faults
from tests.frameworks.documents import ABSENT, Document, changed, kubeflow_mx_job, mpi_job, pytorch_job, tf_job
from tests.kit.choirs import CHOIRS, a_band, a_choir, a_template

MADE = {crd["metadata"]["name"]: crd for crd in manifests(KINDS)}
CHOIR = MADE["choirs.choirs.test.muster.dev"]
HISTORY = {"log": "log-1", "sequence": 7, "hash": "abc"}
CREATED = {"type": "Created", "status": "True", "reason": "ChoirCreated"}
PAUSED = {"type": "Suspended", "status": "True", "reason": "ChoirSuspended"}


def test_a_file_is_named_after_kind_and_group_because_groups_share_kinds():
    assert {"choirs.choirs.test.muster.dev.yaml", "bands.bands.test.muster.dev.yaml"} < render(KINDS).keys()
    assert {"trainingjobs.yaml", "scaleins.yaml", "scaleouts.yaml"} < render(KINDS).keys()


def test_the_files_hold_the_definitions():
    assert [yaml.safe_load(text) for text in render(KINDS).values()] == manifests(KINDS)


def test_names_columns_and_subresources_are_the_frameworks():
    spec = CHOIR["spec"]
    assert spec["names"] == {
        "kind": "Choir",
        "listKind": "ChoirList",
        "plural": "choirs",
        "singular": "choir",
        "shortNames": ["ch"],
        "categories": ["muster"],
    }
    first = spec["versions"][0]
    assert [column["name"] for column in first["additionalPrinterColumns"]] == ["State", "Age"]
    assert first["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.roles.singer.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_the_version_that_is_watched_is_the_one_that_is_stored():
    versions = {version["name"]: version for version in CHOIR["spec"]["versions"]}
    assert [*versions] == ["v1", "v1beta1", "v1alpha1"]
    assert [name for name, version in versions.items() if version["storage"]] == [CHOIRS.version]
    assert all(version["served"] for version in versions.values())
    assert versions["v1beta1"] == versions["v1"] | {"name": "v1beta1", "storage": False}
    assert "conversion" not in CHOIR["spec"], "no server would convert"


@pytest.mark.parametrize("crd", MADE.values(), ids=MADE)
def test_schemas_are_structural(crd: Document):
    for version in crd["spec"]["versions"]:
        assert list(faults(version["schema"]["openAPIV3Schema"])) == []


@pytest.mark.parametrize("document", [a_choir(), a_band()], ids=["roles by name", "a list of roles"])
async def test_a_job_is_admitted_whole(judge: Judge, document: Document):
    first = document["spec"][0] if isinstance(document["spec"], list) else document["spec"]["roles"]["lead"]
    first["template"]["metadata"] = {"labels": {"a": "b"}, "tomorrow": {"x": [1]}}
    first["template"]["spec"]["containers"][0]["tomorrow"] = {"z": {"deep": True}}
    before = copy.deepcopy(document)
    assert await judge.refusals(document) == []
    assert await judge.pruned(document) == []
    assert document == before


async def test_every_version_is_judged_by_the_same_rules(judge: Judge):
    for version in ("v1", "v1beta1", "v1alpha1"):
        document = a_choir() | {"apiVersion": f"{CHOIRS.group}/{version}"}
        assert await judge.refusals(document) == []
        assert await judge.pruned(changed(document, "spec.tomorrow", 1)) == ["spec.tomorrow"]
        (cause,) = await judge.refusals(changed(document, "spec.roles.lead.template.spec.containers", []))
        assert "at least 1 items" in cause


@pytest.mark.parametrize(
    ("document", "path", "value", "word"),
    [
        pytest.param(a_choir(), "metadata.name", "a" * 41, "at most 40", id="a name that is too long"),
        pytest.param(a_choir(), "spec.roles.lead", ABSENT, "lead", id="a role that must be"),
        pytest.param(a_choir(), "spec.roles.singer.replicas", 0, "greater than or equal to 1", id="none of a role"),
        pytest.param(a_choir(), "spec.roles.singer.template.spec.containers[0].image", ABSENT, "image", id="no image"),
        pytest.param(a_band(), "spec[0].role", "SOLO", "LEAD", id="no such role in a list"),
        pytest.param(a_band(), "spec[0].template", {}, "spec", id="an empty template in a list"),
    ],
)
async def test_a_job_is_refused(judge: Judge, document: Document, path: str, value: object, word: str):
    causes = await judge.refusals(changed(document, path, value))
    assert causes
    assert word in causes[0]


TEMPLATE = a_template("other")


@pytest.mark.parametrize(
    ("conditions", "path", "value", "free"),
    [
        pytest.param([CREATED], "spec.roles.lead.template", TEMPLATE, False, id="a template of a running job"),
        pytest.param([CREATED], "spec.roles.singer.template", TEMPLATE, False, id="that of a role that need not be"),
        pytest.param([CREATED], "spec.roles.singer", ABSENT, False, id="a role that goes"),
        pytest.param([CREATED], "spec.roles.singer.replicas", 3, True, id="the size of a running job"),
        pytest.param([CREATED], "spec.runPolicy", {"suspend": True}, True, id="a wish for a pause"),
        pytest.param([CREATED, PAUSED], "spec.roles.singer.template", TEMPLATE, True, id="a template of a paused job"),
        pytest.param(
            [CREATED, PAUSED | {"type": "Suspending"}],
            "spec.roles.singer.template",
            TEMPLATE,
            True,
            id="a template of a job whose pods go",
        ),
        pytest.param(
            [CREATED, PAUSED | {"status": "False"}],
            "spec.roles.singer.template",
            TEMPLATE,
            False,
            id="of a resumed job",
        ),
        pytest.param([], "spec.roles.singer.template", TEMPLATE, True, id="a template of a job that was not taken on"),
        pytest.param([CREATED | {"status": "False"}], "spec.roles.singer", ABSENT, True, id="a role of a refused job"),
        pytest.param(None, "spec.roles.lead.template", TEMPLATE, True, id="a template of a job without a status"),
    ],
)
async def test_what_pods_depend_on_stays(
    judge: Judge, conditions: list[Document] | None, path: str, value: Any, free: bool
):
    old = a_choir() if conditions is None else changed(a_choir(), "status", {"conditions": conditions})
    causes = await judge.refusals(changed(old, path, value), old)
    assert (causes == []) is free
    assert free or "suspend it first" in causes[0]


@pytest.mark.parametrize(
    ("path", "value", "free"),
    [
        pytest.param("worker.template.spec.hostNetwork", True, False, id="a template under a name of any case"),
        pytest.param("Chief", tf_job()["spec"]["tfReplicaSpecs"]["Worker"], False, id="a role that comes"),
        pytest.param("PS", ABSENT, False, id="a role that goes"),
        pytest.param("worker.replicas", 3, True, id="the size of a kind that is scaled"),
        pytest.param("PS.replicas", 2, False, id="the size of another role"),
        pytest.param("worker.restartPolicy", "OnFailure", True, id="when a pod is replaced"),
    ],
)
async def test_what_pods_depend_on_stays_in_a_map_of_roles(judge: Judge, path: str, value: Any, free: bool):
    running = changed(tf_job(worker=2, PS=1), "status", {"conditions": [CREATED]})
    path = f"spec.tfReplicaSpecs.{path}"
    causes = await judge.refusals(changed(running, path, value), running)
    assert (causes == []) is free
    assert free or "suspended" in causes[0]
    paused = changed(running, "status", {"conditions": [CREATED, PAUSED]})
    assert await judge.refusals(changed(paused, path, value), paused) == []
    # Kueue suspends a job and takes its node selector out of the templates in one write.
    pausing = changed(running, "spec.runPolicy", {"suspend": True})
    assert await judge.refusals(changed(pausing, path, value), running) == []


@pytest.mark.parametrize(
    ("document", "field", "value"),
    [
        pytest.param(tf_job(worker=2), "enableDynamicWorker", True, id="the form of TF_CONFIG"),
        pytest.param(pytorch_job(Worker=2), "nprocPerNode", "2", id="the processes of a pod"),
        pytest.param(pytorch_job(Worker=2), "elasticPolicy", {"maxReplicas": 3}, id="the bounds of a group"),
        pytest.param(mpi_job(), "slotsPerWorker", 4, id="the slots of a worker"),
        pytest.param(mpi_job(), "sshAuthMountPath", "/keys", id="where the keys are"),
        pytest.param(kubeflow_mx_job(), "jobMode", ABSENT, id="the mode"),
    ],
)
async def test_what_every_pod_was_told_stays(judge: Judge, document: Document, field: str, value: Any):
    running = changed(document, "status", {"conditions": [CREATED]})
    (cause,) = await judge.refusals(changed(running, f"spec.{field}", value), running)
    assert field in cause
    assert "cannot be changed unless the job is suspended" in cause
    paused = changed(running, "status", {"conditions": [CREATED, PAUSED]})
    assert await judge.refusals(changed(paused, f"spec.{field}", value), paused) == []


@pytest.mark.parametrize(("phase", "free"), [("Running", False), ("", True)])
async def test_a_list_of_roles_is_kept_as_a_whole(judge: Judge, phase: str, free: bool):
    old = changed(a_band(), "status", {"phase": phase})
    causes = await judge.refusals(changed(old, "spec[0].template", TEMPLATE), old)
    assert (causes == []) is free
