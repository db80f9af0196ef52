"""Integrity: a doubt holds the job until a person accepts exactly the head that raised it."""

import msgspec
import pytest

from shared.job.chain import Head
from shared.job.events.watcher import HistoryAccepted, HistoryBroken, HistoryDisputed, JobGone
from shared.job.integrity import Broken, Disputed, Integrity
from shared.job.state import Job
from tests.kit.builders import a_running_job
from tests.kit.stories import given

BROKEN = HistoryBroken(log="other", sequence=9, hash="ab", reason="OtherLog")
DISPUTED = HistoryDisputed(theirs=Head(9, "ab"), ours=Head(8, "cd"))
ACCEPTED = HistoryAccepted(sequence=9, hash="ab")
DOUBTS = [pytest.param(BROKEN, id="broken"), pytest.param(DISPUTED, id="disputed")]


def after(*events: HistoryBroken | HistoryDisputed | HistoryAccepted | JobGone) -> Job:
    return given(*a_running_job(), *events).job


def test_a_history_is_whole_until_the_watcher_says_otherwise():
    assert not after().halted
    assert after().integrity == Integrity()
    assert after().integrity.sentence == ""


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_doubt_holds_the_job_until_exactly_that_head_is_accepted(doubt: HistoryBroken | HistoryDisputed):
    assert after(doubt).halted
    assert after(doubt, HistoryAccepted(sequence=9, hash="cd")).halted
    assert after(doubt, HistoryAccepted(sequence=8, hash="ab")).halted
    assert not after(doubt, ACCEPTED).halted


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_doubt_ends_with_its_job(doubt: HistoryBroken | HistoryDisputed):
    assert not after(doubt, JobGone()).halted
    assert after(doubt, JobGone(), doubt).halted, "the store was restored, and the job is there again"


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_head_that_was_accepted_raises_no_doubt_again(doubt: HistoryBroken | HistoryDisputed):
    assert not after(doubt, ACCEPTED, doubt).halted
    assert not after(ACCEPTED, doubt).halted


def test_both_sides_of_a_dispute_are_known_and_named():
    integrity = after(DISPUTED).integrity
    assert integrity.doubt == Disputed(head=Head(9, "ab"), ours=Head(8, "cd"))
    assert "9:ab" in integrity.sentence
    assert "8:cd" in integrity.sentence


def test_the_newest_doubt_is_the_one_to_accept():
    assert after(DISPUTED, BROKEN).integrity.doubt == Broken("other", Head(9, "ab"), "OtherLog")
    other = HistoryBroken(log="other", sequence=12, hash="ef", reason="OtherLog")
    assert after(BROKEN, other, ACCEPTED).halted


def test_accepted_heads_stay_in_the_order_of_their_acceptance():
    first, second = HistoryAccepted(sequence=9, hash="ab"), HistoryAccepted(sequence=3, hash="zz")
    assert after(first, second, first).integrity.accepted == (Head(9, "ab"), Head(3, "zz"))


def test_a_head_that_has_to_leave_the_resource_is_known_by_where_that_was_said():
    assert after(ACCEPTED).integrity.repair == len(a_running_job()) + 1
    assert not after(ACCEPTED).halted


def test_a_dispute_overwrites_no_side():
    assert after(DISPUTED).integrity.repair == 0


def test_a_lost_history_names_the_kind_of_a_job_that_the_log_has_never_seen():
    lost = msgspec.structs.replace(BROKEN, reason="HistoryLost", kind="TFJob", api_version="kubeflow.org/v1")
    job = given(lost).job
    assert (job.resource.kind, job.resource.api_version) == ("TFJob", "kubeflow.org/v1")
    assert after(lost).resource.kind == "TrainingJob", "what the log has seen counts"


@pytest.mark.parametrize(
    ("status", "leads"),
    [
        pytest.param(None, True, id="no status"),
        pytest.param({"phase": "Running"}, True, id="no head"),
        pytest.param({"history": {"log": "log", "sequence": 7, "hash": "77"}}, True, id="the head of this fold"),
        pytest.param({"history": {"log": "log", "sequence": 6, "hash": "66"}}, True, id="an older head"),
        pytest.param({"history": {"log": "log", "sequence": 7, "hash": "ab"}}, False, id="another head at its place"),
        pytest.param({"history": {"log": "log", "sequence": 8, "hash": "88"}}, False, id="a newer head"),
        pytest.param({"history": {"log": "log", "sequence": 9, "hash": "ab"}}, True, id="a newer one, accepted"),
    ],
)
def test_a_fold_leads_to_no_head_that_is_newer_than_its_own_unless_a_person_accepted_it(status: object, leads: bool):
    assert after(BROKEN, ACCEPTED).integrity.leads_to(status, Head(7, "77")) is leads
