"""Names: what a pod is called, and a job's key in subjects and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.eventlog.subject import Subject
from shared.job.naming import (
    LONGEST_JOB_NAME,
    JobKey,
    Slot,
    Uid,
    config_name,
    key_of,
    pod_name,
    service_name,
    subject_of,
)
from shared.job.spec import LAUNCHER, WORKER

names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,30}[a-z0-9])?", fullmatch=True)


def test_names_are_those_that_scripts_and_selectors_rely_on():
    assert pod_name("resnet", Slot(0, WORKER, 10)) == "resnet-worker-10"
    assert pod_name("resnet", Slot(3, LAUNCHER, 0)) == "resnet-launcher"
    assert service_name("resnet") == "resnet"
    assert config_name("resnet") == "resnet-config"


def test_the_longest_name_still_makes_a_dns_label_of_its_last_worker():
    assert len(pod_name("j" * LONGEST_JOB_NAME, Slot(0, WORKER, 99_999))) <= 63


@given(namespace=names, name=names)
def test_a_key_with_dots_survives_its_subjects(namespace: str, name: str):
    key = JobKey(namespace, name, Uid("0a1b-2c3d"))
    for subject in (subject_of(key, "facts", "watcher", "JobGone"), subject_of(key, "jobs", "status", "JobFailed")):
        assert key_of(Subject.parse(subject)) == key
        assert str(Subject.parse(subject)) == subject


def test_two_names_never_share_a_subject():
    dotted = JobKey("team-a", "res.net", Uid("u"))
    dashed = JobKey("team-a", "res-net", Uid("u"))
    assert subject_of(dotted, "facts", "watcher", "JobGone") == "facts.team-a.res_net.u.watcher.JobGone"
    assert subject_of(dotted, "facts", "watcher", "JobGone") != subject_of(dashed, "facts", "watcher", "JobGone")


@pytest.mark.parametrize(
    "subject", ["", "facts", "facts.a.b.c.watcher", "facts.a.b.c.watcher.JobGone.more", "other.a.b.c.watcher.JobGone"]
)
def test_a_subject_of_another_shape_is_rejected(subject: str):
    with pytest.raises(ValueError, match="not the subject of an event"):
        Subject.parse(subject)


def test_a_key_reads_as_kubectl_names_it():
    assert str(JobKey("team-a", "resnet", Uid("u"))) == "team-a/resnet"
