"""Selectors of a list, as kube-apiserver reads them, and the labels that a history has."""

from time import thread_time

import pytest

from shared.errors import Refused
from shared.history_api import Question
from shared.telling.selection import GONE, KIND, NAME, PHASE, Selection, as_text, from_text, labels_of

OWN = {"team": "a", "kueue.x-k8s.io/queue-name": "night", "plain": ""}
FAILED = labels_of("resnet", "TrainingJob", "Failed", OWN, gone=False)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param("", True, id="none"),
        pytest.param(f"{PHASE}=Failed", True, id="a value"),
        pytest.param(f"{PHASE}==Failed", True, id="a value with two signs"),
        pytest.param(f"{PHASE} = Running", False, id="another value, with spaces"),
        pytest.param(f"{PHASE}!=Running", True, id="any other value"),
        pytest.param(f"{PHASE} in (Running, Failed)", True, id="one of two"),
        pytest.param(f"{PHASE} notin (Running,Failed)", False, id="none of two"),
        pytest.param(f"{PHASE}", True, id="there"),
        pytest.param(f"!{PHASE}", False, id="not there"),
        pytest.param(f"{GONE}=false,{KIND}=TrainingJob,{NAME}=resnet", True, id="all parts hold"),
        pytest.param(f"{PHASE} in (Failed,Running),{KIND}=TFJob", False, id="one part does not hold"),
        pytest.param("team=a,kueue.x-k8s.io/queue-name in (night,day)", True, id="labels of the job"),
        pytest.param("team=b", False, id="another value of the job's"),
        pytest.param("plain=", True, id="no value"),
        pytest.param("plain in (,x), !other , other!=x,other notin (x)", True, id="what is not there has no value"),
        pytest.param("other=", False, id="what is not there is not empty"),
        pytest.param("!team", False, id="not the job's"),
    ],
)
def test_labels_select(selector: str, selected: bool):
    assert Selection(Question(labels=selector)).has("trainingjob.resnet", "team-a", FAILED) == selected


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param("metadata.name=trainingjob.resnet", True, id="a name"),
        pytest.param("metadata.name!=trainingjob.resnet", False, id="all but one name"),
        pytest.param("metadata.name=a,metadata.name=b", False, id="two names"),
        pytest.param("metadata.namespace==team-a,metadata.name!=tfjob.x", True, id="a namespace"),
    ],
)
def test_fields_select(selector: str, selected: bool):
    assert Selection(Question(fields=selector)).has("trainingjob.resnet", "team-a", FAILED) == selected


@pytest.mark.parametrize(
    ("question", "words"),
    [
        pytest.param(Question(labels="a b"), "is no part of a selector", id="two words"),
        pytest.param(Question(labels="Example.com/a=b"), "is no part of a selector", id="a prefix that is no domain"),
        pytest.param(Question(labels=f"a={'b' * 64}"), "at most 63 characters", id="a value that no label has"),
        pytest.param(Question(labels="a in b"), "is no part of a selector", id="a set without brackets"),
        pytest.param(Question(labels=f"{PHASE}>3"), "is no part of a selector", id="an order"),
        pytest.param(Question(labels=f"{PHASE}=a=b"), "is no part of a selector", id="two signs"),
        pytest.param(Question(labels=f"{PHASE}=a,"), "is no part of a selector", id="an empty part"),
        pytest.param(Question(labels="a in (b,c"), "is no part of a selector", id="an open bracket"),
        pytest.param(Question(labels="a in (b c)"), "is no part of a selector", id="a value of two words"),
        pytest.param(Question(labels=f"a in ({', ' * 2000}) x"), "is no part of a selector", id="many commas"),
        pytest.param(Question(labels="," * 4096), "at most 64 parts", id="commas alone"),
        pytest.param(Question(fields="!z," * 64), "at most 64 parts", id="many parts"),
        pytest.param(Question(labels="a" * 4097), "4096 characters", id="a long one"),
        pytest.param(Question(fields="status.phase=Running"), "by metadata.name and metadata.namespace", id="a field"),
        pytest.param(Question(fields="metadata.name"), "write field=value", id="a field alone"),
        pytest.param(Question(fields="metadata.name in (a)"), "write field=value", id="a field among some"),
    ],
)
def test_what_cannot_be_selected_is_refused(question: Question, words: str):
    began = thread_time()
    with pytest.raises(Refused, match=words) as refused:
        Selection(question)
    assert thread_time() - began < 0.1, "the loop that serves everybody stands still for so long"
    assert refused.value.reason == "Invalid"


def test_a_label_is_one_that_kubernetes_takes():
    assert labels_of("x" * 64, "TFJob", "", {}, gone=True) == {KIND: "TFJob", GONE: "true"}
    assert labels_of("x", "TFJob", "", {KIND: "another"}, gone=True)[KIND] == "TFJob", "it is Muster's own"


def test_labels_are_kept_as_text_but_for_what_is_none():
    assert from_text(as_text(OWN)) == OWN
    assert from_text(as_text({})) == {}
    assert from_text(as_text({"a": "b,c=d", "x=y": "z", "e": "f\0g", "h": "i"})) == {"h": "i"}
