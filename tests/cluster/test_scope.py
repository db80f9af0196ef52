"""Two installations are kept apart by scope, or one of them is refused."""

import pytest

from shared.cluster.scope import conflicting, described, holder, is_held, key

CLUSTER, TEAM_A, TEAM_B = key(""), key("team-a"), key("team-b")
OURS, THEIRS = holder("our-log", "nats://ours:4222"), holder("their-log", "nats://theirs:4222")


@pytest.mark.parametrize(
    ("held", "namespace", "in_the_way"),
    [
        pytest.param({}, "", [], id="no claim"),
        pytest.param({"other": "note", CLUSTER: OURS}, "", [], id="ours already"),
        pytest.param({CLUSTER: THEIRS}, "", [CLUSTER], id="the whole cluster twice"),
        pytest.param({TEAM_A: THEIRS}, "team-a", [TEAM_A], id="one namespace twice"),
        pytest.param({TEAM_A: THEIRS}, "team-b", [], id="two namespaces on two logs"),
        pytest.param({TEAM_A: OURS}, "team-b", [], id="two namespaces on one log"),
        pytest.param({CLUSTER: THEIRS}, "team-a", [CLUSTER], id="a namespace of a cluster that is held"),
        pytest.param({TEAM_A: THEIRS, TEAM_B: THEIRS}, "", [TEAM_A, TEAM_B], id="a cluster with namespaces held"),
        pytest.param({TEAM_A: OURS}, "", [TEAM_A], id="both act on the same jobs, and on one log too"),
        pytest.param({CLUSTER: OURS}, "team-a", [CLUSTER], id="and the other way round"),
    ],
)
def test_who_is_in_the_way(held: dict[str, str], namespace: str, in_the_way: list[str]):
    assert sorted(conflicting(held, namespace, "our-log")) == sorted(in_the_way)


def test_a_log_that_is_not_there_yet_holds_nothing():
    assert conflicting({CLUSTER: THEIRS}, "", "") == {CLUSTER: THEIRS}
    assert not is_held({CLUSTER: THEIRS}, "", "")


def test_the_address_of_a_log_may_change():
    assert is_held({CLUSTER: holder("our-log", "nats://elsewhere:4222")}, "", "our-log")
    assert not is_held({TEAM_A: OURS}, "", "our-log")
    assert not is_held(None, "", "our-log")


def test_claims_in_words():
    assert described({CLUSTER: THEIRS}) == "the whole cluster has the log their-log at nats://theirs:4222"
    assert described({TEAM_B: OURS}).startswith("the namespace team-b has the log our-log")


def test_the_longest_namespace_has_a_key():
    assert len(key("n" * 63).partition("/")[2]) <= 63
