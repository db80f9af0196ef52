"""What counts as a claim: a write that changed an object, with the version that it made."""

from typing import Any

import pytest

from services.audit.core import CREATED, DELETED, MOST_GROUPS, Claim, claims
from shared.untrusted import MALFORMED
from tests.audit.conftest import GROUP, a_list, an_event

KINDS = {(GROUP, "trainingjobs"), (GROUP, "scaleouts")}


def one(event: Any) -> Claim | None:
    found = [*claims(a_list(event), KINDS, groups=True)]
    return found[0] if found else None


def test_an_edit_is_claimed_by_its_user_with_the_version_that_it_made():
    assert one(an_event()) == Claim(
        namespace="team-a",
        uid="uid-1",
        write=40,
        user="alice",
        groups=("team-a", "system:authenticated"),
        acting_as="",
        agent="kubectl/v1.36.2 (linux/amd64)",
        audit="audit-1",
    )


POLICY = "my-muster-audit.team-a.muster.dev"
GONE = {"kind": "Status", "metadata": {}, "status": "Success", "details": {"name": "resnet", "uid": "uid-1"}}
SCALE = {"resource": "trainingjobs", "namespace": "team-a", "apiGroup": GROUP, "subresource": "scale"}


@pytest.mark.parametrize(
    ("event", "write"),
    [
        pytest.param(an_event("create", code=201), CREATED, id="a creation"),
        pytest.param(an_event("patch", code=201), CREATED, id="a server-side apply that creates"),
        pytest.param(an_event("update"), 40, id="a replacement"),
        pytest.param(an_event(annotations={f"{POLICY}/muster-changed": "yes"}), 40, id="with the policy of the chart"),
        pytest.param(an_event(objectRef=SCALE), 40, id="through the scale subresource"),
        pytest.param(an_event("delete", responseObject=GONE), DELETED, id="a deletion at once"),
        pytest.param(an_event("delete"), DELETED, id="a deletion that waits for a finalizer"),
    ],
)
def test_each_write_is_claimed(event: Any, write: int):
    claim = one(event)
    assert claim is not None
    assert (claim.uid, claim.write) == ("uid-1", write)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(an_event(changed=False), id="an edit that changed nothing has another one's version"),
        pytest.param(
            an_event(annotations={f"{POLICY}/muster-changed": "yes", f"{POLICY}/muster-unchanged": "yes"}),
            id="one that was tried again, and changed nothing then",
        ),
        pytest.param(an_event(annotations={"a.webhook/muster-changed": "yes"}), id="the note of another policy"),
        pytest.param(an_event(annotations={}), id="without the policy nothing is certain"),
        pytest.param(an_event(code=409), id="a conflict"),
        pytest.param(an_event(stage="RequestReceived"), id="a request that was not answered yet"),
        pytest.param(an_event("deletecollection"), id="a deletion of many"),
        pytest.param(an_event("get"), id="a read"),
        pytest.param(an_event(responseObject=None), id="the level Metadata"),
        pytest.param(an_event(version=0), id="no version"),
        pytest.param(an_event(uid=""), id="no uid"),
        pytest.param(an_event(uid="u" * 1000), id="a long uid"),
        pytest.param(an_event(user=""), id="no user"),
        pytest.param(an_event(user="a" * 2000), id="a user who would be cut"),
        pytest.param(an_event(objectRef={**SCALE, "subresource": "status"}), id="a status"),
        pytest.param(an_event(objectRef={**SCALE, "resource": "pods"}), id="another kind"),
        pytest.param(an_event(objectRef=None), id="no object"),
        pytest.param({}, id="nothing"),
        pytest.param([], id="a list"),
        pytest.param(an_event(user=7), id="another type of value"),
    ],
)
def test_what_is_not_certain_is_no_claim(event: Any):
    assert one(event) is None


def test_a_malformed_event_takes_nothing_from_the_others_of_its_batch():
    body = a_list(an_event(user=7), an_event())
    assert [claim.user for claim in claims(body, KINDS)] == ["alice"]
    deep = body.replace(b'"user":{"username":7}', b"").replace(b'"etReplicaSpecs":{}', b'"x":' + b"[" * 9999, 1)
    deep = deep.replace(b"[" * 9999, b"[" * 9999 + b"]" * 9999)
    assert [claim.user for claim in claims(deep, KINDS)] == ["alice"]


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{", b"[" * 100_000], ids=lambda body: repr(body[:9]))
def test_no_list_of_events_is_malformed(body: bytes):
    with pytest.raises(MALFORMED):
        [*claims(body, KINDS)]


def test_who_impersonates_whom_is_told_apart():
    claim = one(an_event(impersonatedUser={"username": "bob"}))
    assert claim is not None
    assert (claim.user, claim.acting_as) == ("alice", "bob")


@pytest.mark.parametrize("audit", ["", "x" * 9999, "\x1b[2J"], ids=["none", "long", "control characters"])
def test_no_id_that_a_client_chose_keeps_its_write_from_being_claimed(audit: str):
    claim = one(an_event(audit=audit))
    assert claim is not None
    assert len(claim.audit) <= 128
    assert claim.audit.isprintable()


def test_groups_and_agents_are_bounded():
    groups = ["g" * 2000, *(f"group-{number}" for number in range(99))]
    user = {"username": "alice", "groups": groups}
    claim = one({**an_event(), "user": user, "userAgent": "a\n" + "x" * 9999})
    assert claim is not None
    assert claim.groups == tuple(groups[1 : MOST_GROUPS + 1])
    assert len(claim.agent) <= 256


def test_a_name_is_taken_without_groups_by_default():
    [claim] = claims(a_list(an_event()), KINDS)
    assert (claim.user, claim.groups) == ("alice", ())
