"""An installed definition beside ours: who is newer, and that nothing of others is taken away."""

import copy
from typing import Any

import pytest

from muster.crds import Verdict, compare, manifests, merged
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.training_job import TRAININGJOB
from shared.release import MARK, is_older, this_release
from tests.kit import et_operator

OURS = next(each for each in manifests(Kinds([TRAININGJOB])) if each["spec"]["names"]["kind"] == "TrainingJob")
[MPI] = manifests(Kinds([MPIJOB]))

Document = dict[str, Any]


def installed(ours: Document = OURS, *, mark: str = "") -> Document:
    """As the API server gives it."""
    found = copy.deepcopy(ours)
    found["metadata"] |= {"annotations": {MARK: mark} if mark else {"kubectl": "was here"}}
    found["spec"]["conversion"] = {"strategy": "None"}
    return found | {"status": {"storedVersions": [ours["spec"]["versions"][0]["name"]]}}


def spec_fields(definition: Document) -> Document:
    fields: Document = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    return fields


def more(found: Document) -> Document:
    """With a field that ours has not."""
    spec_fields(found)["priority"] = {"type": "integer"}
    return found


def less(found: Document) -> Document:
    """Without a field that ours has."""
    del spec_fields(found)["suspend"]
    return found


def retyped(found: Document) -> Document:
    spec_fields(found)["suspend"] = {"type": "string"}
    return found


def reworded(found: Document) -> Document:
    spec_fields(found)["suspend"]["description"] = "Other words."
    return found


def foreign(found: Document) -> Document:
    found["spec"]["names"]["categories"] = ["all"]
    return found


def not_served(found: Document) -> Document:
    found["spec"]["versions"][0]["served"] = False
    return found


def without_scale(found: Document) -> Document:
    del found["spec"]["versions"][0]["subresources"]["scale"]
    return found


@pytest.mark.parametrize(
    ("found", "verdict", "why"),
    [
        pytest.param(None, Verdict.MISSING, "", id="none"),
        pytest.param(installed(), Verdict.SAME, "", id="the same"),
        pytest.param(installed(mark="99.0"), Verdict.SAME, "", id="the same of whatever release"),
        pytest.param(less(installed()), Verdict.OLDER, "lacks .spec.suspend", id="a field less"),
        pytest.param(without_scale(installed()), Verdict.OLDER, "lacks subresource scale", id="a subresource less"),
        pytest.param(not_served(installed()), Verdict.OLDER, "lacks version v1alpha1", id="a version not served"),
        pytest.param(reworded(installed()), Verdict.OLDER, "", id="other words without a release"),
        pytest.param(reworded(installed(mark="0.0.1")), Verdict.OLDER, "", id="other words of an older release"),
        pytest.param(reworded(installed(mark="99.0")), Verdict.NEWER, "release 99.0", id="of a newer release"),
        pytest.param(more(installed()), Verdict.NEWER, "has .spec.priority", id="a field more"),
        pytest.param(more(installed(mark=this_release())), Verdict.NEWER, ".spec.priority", id="added by hand"),
        pytest.param(more(installed(mark="0.0.1")), Verdict.DIFFERENT, "which this one lacks", id="a field dropped"),
        pytest.param(more(less(installed())), Verdict.DIFFERENT, "and lacks", id="a field more and one less"),
        pytest.param(more(less(installed(mark="99.0"))), Verdict.NEWER, "99.0", id="newer, and one dropped"),
        pytest.param(retyped(installed()), Verdict.DIFFERENT, ".spec.suspend", id="another type"),
        pytest.param(foreign(installed()), Verdict.FOREIGN, "category", id="another operator's"),
    ],
)
def test_verdicts(found: Document | None, verdict: Verdict, why: str):
    compared = compare(found, OURS)
    assert compared.verdict is verdict, compared
    assert why in compared.why


@pytest.mark.parametrize("theirs", et_operator.definitions(), ids=lambda each: each["metadata"]["name"])
def test_et_operators_are_anothers(theirs: Document):
    name = theirs["metadata"]["name"]
    ours = next(each for each in manifests(BUILT_IN) if each["metadata"]["name"] == name)
    assert compare(theirs, ours).verdict is Verdict.FOREIGN


def test_what_keeps_unknown_fields_keeps_all_below():
    closed, opened = installed(), copy.deepcopy(OURS)
    spec_fields(opened)["suspend"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec_fields(closed)["suspend"] = {"type": "object", "properties": {"since": {"type": "string"}}}
    assert compare(closed, opened).verdict is Verdict.OLDER
    assert compare(installed(opened), closed).verdict is Verdict.NEWER


def test_an_upgrade_keeps_what_others_added():
    found = less(installed())
    found["spec"]["names"] |= {"shortNames": ["job"], "categories": ["muster", "all"]}
    found["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"clientConfig": {}}}
    found["spec"]["versions"].append(found["spec"]["versions"][0] | {"name": "v2", "storage": False})
    assert compare(found, OURS).verdict is Verdict.OLDER
    new = merged(found, OURS)
    assert new["conversion"]["strategy"] == "Webhook"
    assert new["names"]["shortNames"] == ["tj", "job"]
    assert new["names"]["categories"] == ["muster", "all"]
    assert [version["name"] for version in new["versions"]] == ["v1alpha1", "v2"]
    assert new["versions"][0] == OURS["spec"]["versions"][0]
    assert compare(found | {"spec": new}, OURS).verdict is Verdict.SAME


def test_what_is_stored_in_a_version_of_others_stays_there():
    found = less(installed())
    found["spec"]["versions"][0]["storage"] = False
    found["spec"]["versions"].append(found["spec"]["versions"][0] | {"name": "v2", "storage": True})
    assert [version["storage"] for version in merged(found, OURS)["versions"]] == [False, True]


def test_a_version_of_ours_that_is_missing_is_added():
    found = installed(MPI)
    [kept] = [version for version in found["spec"]["versions"] if version["name"] == "v1"]
    found["spec"]["versions"] = [kept]
    compared = compare(found, MPI)
    assert compared.verdict is Verdict.OLDER
    assert "version v2beta1" in compared.why


@pytest.mark.parametrize("ours", manifests(BUILT_IN), ids=lambda each: each["metadata"]["name"])
def test_each_of_ours_is_as_this_release_makes_it(ours: Document):
    assert compare(installed(ours), ours).verdict is Verdict.SAME


@pytest.mark.parametrize(
    ("one", "other", "older"),
    [
        pytest.param("0.1.0", "0.2.0", True, id="one before two"),
        pytest.param("0.9.0", "0.10.0", True, id="numbers, not letters"),
        pytest.param("1.0.0rc1", "1.0.0", True, id="a candidate before its release"),
        pytest.param("1.0.0", "1.0.0", False, id="the same"),
        pytest.param("2.0", "1.9.9", False, id="shorter and newer"),
        pytest.param("", "0.1.0", True, id="unmarked"),
        pytest.param("unknown", "0.1.0", True, id="no release at all"),
    ],
)
def test_releases(one: str, other: str, older: bool):
    assert is_older(one, other) is older
