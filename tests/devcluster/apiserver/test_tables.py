"""The words that kubectl prints: ages, pod states, columns."""

import pytest

from devcluster.apiserver.table import age, find, human_duration, ready, restarts, state

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (9 * MINUTE + 5, "9m5s"),
        (10 * MINUTE + 5, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (47 * HOUR, "47h"),
        (2 * DAY + HOUR, "2d1h"),
        (400 * DAY, "400d"),
        (800 * DAY, "2y70d"),
        (-5, "<invalid>"),
    ],
)
def test_durations(seconds, text):
    assert human_duration(seconds) == text


def test_ages_of_what_is_no_time():
    assert age(None) == "<unknown>"
    assert age("yesterday") == "<invalid>"


def a_pod(*containers, phase="Running", init=(), **metadata):
    return {
        "metadata": {"name": "a"} | metadata,
        "spec": {"containers": [{"name": str(number)} for number, _ in enumerate(containers)]},
        "status": {"phase": phase, "containerStatuses": [*containers], "initContainerStatuses": [*init]},
    }


RUNNING = {"ready": True, "restartCount": 1, "state": {"running": {}}}
FAILED = {"ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
DONE = {"ready": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
PULLING = {"ready": False, "state": {"waiting": {"reason": "ErrImagePull"}}}


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        pytest.param(a_pod(RUNNING), "Running", id="all is well"),
        pytest.param(a_pod(RUNNING, FAILED), "Error", id="one container failed"),
        pytest.param(a_pod(RUNNING, DONE), "Running", id="one is done, one runs"),
        pytest.param(a_pod(PULLING, phase="Pending"), "ErrImagePull", id="waiting"),
        pytest.param(a_pod(RUNNING, deletionTimestamp="2024-01-01T00:00:00Z"), "Terminating", id="ending"),
        pytest.param(a_pod(RUNNING, init=[DONE, RUNNING]), "Init:1/2", id="still initializing"),
        pytest.param(a_pod(RUNNING, init=[FAILED]), "Init:Error", id="an init container failed"),
    ],
)
def test_the_word_for_a_pod(pod, word):
    assert state(pod) == word


def test_pods_count_ready_containers_and_restarts():
    pod = a_pod(RUNNING, FAILED)
    assert (ready(pod), restarts(pod)) == ("1/2", "1")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".status.phase", "Running"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.list[1]", "b"),
        (".status.list[*]", "a"),
        (".status.list[-1:]", "b"),
        (".status.list[1:]", "b"),
        (".status.list[:1]", "a"),
        (".status.list[2:]", None),
        (".metadata.annotations.example\\.dev/note", "hello"),
        (".metadata['name']", "x"),
        (".status.missing.deeper", None),
        ("..anything", None),
    ],
)
def test_paths_of_columns(path, value):
    obj = {
        "metadata": {"name": "x", "annotations": {"example.dev/note": "hello"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "list": ["a", "b"]},
    }
    assert find(obj, path) == value
