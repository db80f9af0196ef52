"""What each account reaches, and filters of subjects; `tests/security/test_nats_users.py` tries it at a server."""

import pytest

from shared.eventlog.account import (
    ACCOUNT,
    ADMIN,
    ARCHIVER,
    AUDIT,
    AUTHORS,
    HISTORY,
    READER,
    USERS,
    accounts,
    asks,
    publishes,
)
from shared.eventlog.subject import covering, matches

GUESTS = (*AUTHORS, READER, HISTORY, AUDIT, ARCHIVER)


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
