"""What the API server says of a refused pod is recorded, without the values that the pod's author wrote."""

from typing import Any

import pytest

from shared.cluster.answers import without_values
from shared.errors import Refused
from shared.job.naming import CONTAINER


def a_pod(**variables: str) -> dict[str, Any]:
    environment = [{"name": name, "value": value} for name, value in variables.items()]
    return {
        "metadata": {
            "name": "resnet-worker-0",
            "namespace": "default",
            "annotations": {"example.com/token": "annotated-secret"},
            "ownerReferences": [{"name": "resnet"}],
        },
        "spec": {"containers": [{"name": "main", "env": environment}, {"name": "side"}], "initContainers": None},
    }


def words(said: str, manifest: dict[str, Any]) -> str:
    refusal = without_values(Refused(f"x: {said}", reason="Forbidden", words=said), "create Pod", manifest)
    assert refusal.words in str(refusal)
    assert refusal.reason == "Forbidden"
    return refusal.words


@pytest.mark.parametrize(
    ("said", "value"),
    [
        pytest.param('denied: {"env":[{"name":"T","value":"hunter2"}]}', "hunter2", id="as JSON"),
        pytest.param("denied: T=hunter2, go away", "hunter2", id="in a sentence"),
        pytest.param('denied: "a\\"quote"', 'a"quote', id="with a quote that JSON escapes"),
        pytest.param(r'denied: "a\u0026b\u003cc"', "a&b<c", id="with what Go escapes for HTML"),
        pytest.param("denied: hunter2-and-more", "hunter2-and-more", id="of two values that begin alike the longer"),
    ],
)
def test_no_value_of_the_environment_is_repeated(said: str, value: str):
    told = words(said, a_pod(PASSWORD=value, SHORT="hunter2"))
    assert "hunter2" not in told
    assert value not in told
    assert "[withheld]" in told


def test_no_value_of_an_annotation_is_repeated():
    assert words("denied: annotated-secret", a_pod()) == "denied: [withheld]"


def test_names_and_the_numbers_of_a_quota_stay():
    said = 'pods "resnet-worker-0" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3'
    assert words(said, a_pod(ADDRESS="resnet-worker-0", RANK="1", WORLD="3")) == said


def test_the_name_of_a_container_stays_though_muster_writes_it_into_an_annotation():
    said = 'violates PodSecurity "restricted": containers "main", "side" must set allowPrivilegeEscalation=false'
    pod = a_pod(ROLE="side")
    pod["metadata"]["annotations"][CONTAINER] = "main"
    assert words(said, pod) == said


def test_a_value_that_a_line_of_the_log_would_cut_in_two_does_not_show_its_beginning():
    secret = "s3cr3t" * 20
    refusal = Refused("cut", reason="Forbidden", words="x" * 290 + " " + secret)
    assert "s3cr3t" not in str(without_values(refusal, "create Pod", a_pod(TOKEN=secret)))


@pytest.mark.parametrize(
    "wrong", [{"name": "init"}, ["init"], "init", 7, [{"env": {"TOKEN": "hunter2"}}], [{"env": [1]}]]
)
def test_a_pod_with_containers_of_any_shape_is_refused_in_the_servers_words(wrong: object):
    pod = a_pod(TOKEN="hunter2")
    pod["spec"]["initContainers"] = wrong
    assert words("denied: hunter2", pod) == "denied: [withheld]"
