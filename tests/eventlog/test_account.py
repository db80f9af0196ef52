"""Who may publish what."""

import pytest

from shared.eventlog.account import AUTHORS, asks, listens, publishes
from tests.memory.eventlog import matches


@pytest.mark.parametrize(
    ("pattern", "subject", "covered"),
    [
        pytest.param("a.b", "a.b", True, id="itself"),
        pytest.param("a.b", "a.b.c", False, id="not what is longer"),
        pytest.param("a.*", "a.b", True, id="a star is one token"),
        pytest.param("a.*", "a.b.c", False, id="a star is not two tokens"),
        pytest.param("a.>", "a.b.c", True, id="the rest is any number of tokens"),
        pytest.param("a.>", "a", False, id="the rest is at least one token"),
        pytest.param("*.b.>", "a.b.c", True, id="both at once"),
        pytest.param("worker-1.>", "worker-10.x", False, id="tokens are compared whole"),
    ],
)
def test_matches(pattern: str, subject: str, covered: bool):
    assert matches(pattern, subject) is covered


@pytest.mark.parametrize("author", AUTHORS)
def test_a_service_publishes_under_its_own_name_alone(author: str):
    for other in AUTHORS:
        for family in ("facts", "jobs"):
            allowed = any(matches(pattern, f"{family}.ns.job.uid.{other}.Type") for pattern in publishes(author))
            assert allowed is (author == other)


@pytest.mark.parametrize("author", [*AUTHORS, "reader"])
def test_only_the_administrator_changes_a_stream(author: str):
    forbidden = [
        f"$JS.API.STREAM.{verb}.{stream}"
        for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE", "SNAPSHOT")
        for stream in ("JOBS", "KV_LEASES", "KV_HEADS")
    ]
    forbidden += [
        "$JS.API.CONSUMER.DELETE.JOBS.c",
        "$JS.API.CONSUMER.CREATE.KV_LEASES.c",
        "$KV.HEADS.x" * (author != "status"),
    ]
    allowed = (*publishes(author), *asks(author))
    assert not [subject for subject in forbidden if any(matches(pattern, subject) for pattern in allowed)]


def test_no_user_hears_the_answers_of_others():
    for author in AUTHORS:
        assert listens(author) == (f"_INBOX_{author}.>",)
