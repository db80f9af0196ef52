"""Names: what a pod is called, and a job's key in subjects and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.job.naming import (
    LONGEST_JOB_NAME,
    JobKey,
    Slot,
    Uid,
    config_name,
    decision_subject,
    fact_subject,
    key_of,
    pod_name,
    service_name,
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
def test_a_key_comes_back_from_its_subjects_whatever_dots_are_in_it(namespace: str, name: str):
    key = JobKey(namespace, name, Uid("0a1b-2c3d"))
    for subject in (fact_subject(key, "watcher", "JobGone"), decision_subject(key, "status", "JobFailed")):
        assert key_of(subject) == key
        assert len(subject.split(".")) == 6, "a dot in a name is no token of its own"


def test_two_names_never_share_a_subject():
    dotted = JobKey("team-a", "res.net", Uid("u"))
    dashed = JobKey("team-a", "res-net", Uid("u"))
    assert fact_subject(dotted, "watcher", "JobGone") == "facts.team-a.res_net.u.watcher.JobGone"
    assert fact_subject(dotted, "watcher", "JobGone") != fact_subject(dashed, "watcher", "JobGone")


@pytest.mark.parametrize("subject", ["", "facts", "facts.a.b.c.watcher", "facts.a.b.c.watcher.JobGone.more"])
def test_a_subject_of_another_shape_is_nobodys(subject: str):
    with pytest.raises(ValueError, match="unpack"):
        key_of(subject)


def test_a_key_reads_as_kubectl_names_it():
    assert str(JobKey("team-a", "resnet", Uid("u"))) == "team-a/resnet"
