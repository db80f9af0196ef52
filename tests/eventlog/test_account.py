"""Who may publish what, and what each account reaches."""

import pytest

from shared.eventlog.account import (
    ACCOUNT,
    ADMIN,
    AUDIT,
    AUTHORS,
    HISTORY,
    READER,
    USERS,
    accounts,
    asks,
    listens,
    publishes,
)
from shared.eventlog.subject import covering, matches

GUESTS = (*AUTHORS, READER, HISTORY, AUDIT)


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


@pytest.mark.parametrize(
    ("patterns", "cover"),
    [
        pytest.param((), ">", id="everything"),
        pytest.param(("a.b.>",), "a.b.>", id="one is itself"),
        pytest.param(("facts.ns.>", "jobs.ns.>"), "*.ns.>", id="both families of a namespace"),
        pytest.param(("a.b", "a.c"), "a.*", id="tokens that differ"),
        pytest.param(("a.b.c", "a.>"), "a.>", id="an open end"),
        pytest.param(("a.b", "a.b.c"), "a.>", id="another length"),
        pytest.param(("a.b.c", "a.x.>", "a.b"), "a.>", id="three"),
        pytest.param(("a", "b.c"), ">", id="nothing in common"),
    ],
)
def test_covering(patterns: tuple[str, ...], cover: str):
    assert covering(patterns) == cover


@pytest.mark.parametrize("author", AUTHORS)
def test_a_service_publishes_under_its_own_name_alone(author: str):
    for other in AUTHORS:
        for family in ("facts", "jobs"):
            allowed = any(matches(pattern, f"{family}.ns.job.uid.{other}.Type") for pattern in publishes(author))
            assert allowed is (author == other)


def test_the_audit_service_publishes_facts_of_one_type():
    assert publishes(AUDIT) == ("facts.*.*.*.audit.ChangeAttributed",)
    assert not any("KV_" in subject for subject in asks(AUDIT))


@pytest.mark.parametrize("author", GUESTS)
def test_only_the_administrator_changes_a_stream(author: str):
    forbidden = [
        f"$JS.API.STREAM.{verb}.{stream}"
        for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE", "SNAPSHOT")
        for stream in ("JOBS", "KV_LEASES", "KV_HEADS")
    ]
    forbidden += [
        "$JS.API.CONSUMER.DELETE.JOBS.c",
        "$JS.API.CONSUMER.CREATE.JOBS.c",
        "$JS.API.CONSUMER.MSG.NEXT.JOBS.c",
        "$KV.HEADS.x" * (author != "status"),
    ]
    allowed = (*publishes(author), *asks(author))
    assert not [subject for subject in forbidden if any(matches(pattern, subject) for pattern in allowed)]


def test_no_user_hears_the_answers_of_others():
    for user in GUESTS:
        assert listens(user) == (f"_INBOX_{user}.>", "stored.>")


@pytest.mark.parametrize("user", GUESTS)
def test_an_account_imports_what_its_user_may_use_and_no_other_account_has_it(user: str):
    table = accounts(dict.fromkeys(USERS, "secret"))
    imported = {each["service"]["subject"] for each in table[user]["imports"] if "service" in each}
    assert imported == {*publishes(user), *asks(user)}
    exported = {each["service"] for each in table[ACCOUNT]["exports"] if user in each["accounts"] and "service" in each}
    assert exported == imported
    assert [found["user"] for found in table[user]["users"]] == [user]
    assert "jetstream" not in table[user]


def test_the_administrator_alone_is_in_the_logs_account():
    assert [found["user"] for found in accounts(dict.fromkeys(USERS, "secret"))[ACCOUNT]["users"]] == [ADMIN]


@pytest.mark.parametrize("user", GUESTS)
def test_no_user_creates_anything_at_the_server(user: str):
    assert not [subject for subject in asks(user) if "CONSUMER" in subject or "CREATE" in subject]
