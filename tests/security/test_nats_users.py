"""One user per service at a real NATS server: what each may not do, and that it hears so at once and by name."""

import asyncio
import json
from pathlib import Path

import pytest

from shared.errors import Refused, Trouble
from shared.eventlog import api
from shared.eventlog.account import (
    ADMIN,
    ARCHIVER,
    AUDIT,
    AUTHORS,
    GENESIS,
    HEADS,
    HISTORY,
    LEASES,
    READER,
    inbox_of,
    stream_of,
    subject_of,
)
from shared.eventlog.connection import Connection
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import must_fit
from shared.eventlog.streams import LOG_CONFIG
from tests.kit.nats import a_decision, a_namespace, a_server, at, connected

pytestmark = pytest.mark.nats

AT_ONCE = 10.0
"""Seconds in which a refusal must be known; a request without an answer takes three times as long.

Milliseconds on a quiet machine; on one that is busy with other tests both processes may wait for their turn.
"""
STREAMS = ("JOBS", "KV_LEASES", "KV_HEADS", "ARCHIVE")
PEOPLE = (*AUTHORS, READER, HISTORY, AUDIT, ARCHIVER)


async def is_refused(connection: Connection, subject: str, body: bytes = b"{}") -> None:
    """Nothing comes of it, and the caller learns why before any timeout."""
    async with asyncio.timeout(AT_ONCE):
        with pytest.raises(Refused) as refusal:
            await connection.request(subject, body, timeout=3 * AT_ONCE)
    assert refusal.value.reason == "Forbidden", refusal.value
    assert subject in str(refusal.value)
    assert connection.name in str(refusal.value)


def of_others(user: str, namespace: str) -> list[str]:
    """Where others write, and this user never may."""
    job = f"{namespace}.resnet.u-1"
    strangers = [author for author in (*AUTHORS, "setup", "nobody") if author != user]
    subjects = [f"{family}.{job}.{author}.Forged" for family in ("facts", "jobs") for author in strangers]
    subjects += [f"$KV.LEASES.{author}" for author in strangers]
    subjects += [f"$KV.LEASES.{author}.{namespace}" for author in strangers]
    # Names that only begin as ours, and places beside the six tokens of a subject.
    subjects += [f"facts.{job}.{user}x.Forged", f"jobs.{job}.Forged", f"jobs.{namespace}.{user}.Forged", GENESIS]
    subjects += [f"$KV.LEASES.{user}x", "$KV.OTHER.key", inbox_of(ADMIN), f"{inbox_of('watcher')}.1"]
    # What readers hear live, and of the audit service's own facts all but one type.
    subjects += [f"stored.jobs.{job}.{user}.Forged", f"facts.{job}.{AUDIT}.Forged"]
    subjects += [f"archive.{job}"] if user != ARCHIVER else [f"archive.{job}.more", f"jobs.{job}.status.JobSealed"]
    return subjects if user == "status" else [*subjects, f"$KV.HEADS.{namespace}"]


@pytest.mark.parametrize("user", PEOPLE)
async def test_each_publishes_under_its_own_name_alone(nats_server: NatsServer, user: str):
    namespace = a_namespace()
    async with at(nats_server, user) as connection, connected(nats_server, ADMIN) as admin:
        before = await admin.end()
        for subject in of_others(user, namespace):
            await is_refused(connection, subject)
        assert await admin.last(f"facts.{namespace}.>") is None
        assert await admin.last(f"jobs.{namespace}.>") is None
        if user in AUTHORS:
            for family in ("facts", "jobs"):
                await api.publish(connection, f"{family}.{namespace}.resnet.u-1.{user}.Own", b"{}", {})
            await api.publish(connection, f"$KV.LEASES.{user}.{namespace}", b"me", {})
            assert await admin.end() == before + 2


@pytest.mark.parametrize("user", PEOPLE)
async def test_no_service_changes_removes_or_copies_a_stream(nats_server: NatsServer, user: str):
    own = json.dumps(LOG_CONFIG | {"max_msgs": 1}).encode()
    async with connected(nats_server) as log:
        kept = await log.append(a_decision(a_namespace()), expect=0)
    requests = {
        "STREAM.UPDATE": own,
        "STREAM.CREATE": own,
        "STREAM.DELETE": b"",
        "STREAM.PURGE": b"{}",
        "STREAM.MSG.DELETE": json.dumps({"seq": kept}).encode(),
        "STREAM.SNAPSHOT": json.dumps({"deliver_subject": inbox_of(user)}).encode(),
        "STREAM.RESTORE": b"{}",
        "STREAM.LEADER.STEPDOWN": b"",
        "STREAM.PEER.REMOVE": json.dumps({"peer": "n0"}).encode(),
        "CONSUMER.LIST": b"",
        "CONSUMER.NAMES": b"",
    }
    async with at(nats_server, user) as connection, connected(nats_server, ADMIN) as admin:
        for request, body in requests.items():
            for stream in STREAMS:
                if user == ARCHIVER and request == "STREAM.PURGE" and stream in ("JOBS", "ARCHIVE"):
                    continue
                await is_refused(connection, f"$JS.API.{request}.{stream}", body)
        await is_refused(connection, "$JS.API.STREAM.CREATE.SHADOW", json.dumps({"name": "SHADOW"}).encode())
        await is_refused(connection, "$JS.API.CONSUMER.DELETE.JOBS.reader-status-1")
        await is_refused(connection, "$JS.API.CONSUMER.PAUSE.JOBS.reader-status-1")
        await is_refused(connection, "$JS.API.CONSUMER.DURABLE.CREATE.JOBS.mine")
        await is_refused(connection, "$JS.API.ACCOUNT.PURGE.$G")
        await is_refused(connection, "$SYS.REQ.SERVER.PING")
        found = await api.message(admin.connection, "JOBS", seq=kept)
        assert found is not None
        assert (await api.stream_info(admin.connection, "JOBS")).config["max_msgs"] == -1


@pytest.mark.parametrize("user", AUTHORS)
async def test_the_right_to_write_is_no_right_to_wipe(nats_server: NatsServer, user: str):
    namespace = a_namespace()
    async with at(nats_server, user) as connection, connected(nats_server, "watcher") as watcher:
        leases, other = await watcher.bucket(LEASES), f"watcher.{namespace}-other"
        await leases.put(other, b"theirs")
        event = f"jobs.{namespace}.resnet.u-1.{user}.Own"
        first = await api.publish(connection, event, b"{}", {})
        for subject in (event, subject_of(LEASES, f"{user}.{namespace}")):
            # A roll-up replaces everything before it: of the subject, or of the whole stream.
            for reach in ("sub", "all"):
                with pytest.raises(Trouble, match="rollup not permitted"):
                    await api.publish(connection, subject, b"{}", {"Nats-Rollup": reach})
        with pytest.raises(Trouble, match="TTL"):
            await api.publish(connection, event, b"{}", {"Nats-TTL": "1s"})
        assert await api.message(connection, "JOBS", seq=first.seq) is not None
        assert await leases.get(other) is not None


@pytest.mark.parametrize("bucket", [LEASES, HEADS])
async def test_a_bucket_that_can_be_wiped_is_not_worked_with(tmp_path: Path, bucket: str):
    async with a_server(tmp_path) as server, connected(server, ADMIN) as admin:
        await must_fit(admin)
        config = (await api.stream_info(admin.connection, stream_of(bucket))).config | {"allow_rollup_hdrs": True}
        await api.call(admin.connection, f"STREAM.UPDATE.{stream_of(bucket)}", config, dict)
        with pytest.raises(Refused, match=f"KV_{bucket}: allow_rollup_hdrs is True") as refusal:
            await must_fit(admin)
        assert refusal.value.reason == "Unfit"


@pytest.mark.parametrize("user", PEOPLE)
async def test_no_user_listens_to_the_answers_of_others(nats_server: NatsServer, user: str):
    others = [inbox_of(other) for other in (ADMIN, *PEOPLE) if other != user]
    for inbox in (*(f"{inbox}.>" for inbox in others), "_INBOX.>", "$JS.EVENT.>", ">"):
        async with at(nats_server, user) as connection:
            waiting = asyncio.create_task(connection.request("$JS.API.STREAM.INFO.JOBS", timeout=AT_ONCE))
            subscription = await connection._client.subscribe(inbox)
            await asyncio.gather(waiting, return_exceptions=True)
            assert "permissions violation for subscription" in connection._trouble, inbox
            assert subscription.pending_msgs == 0


async def test_a_refusal_does_not_disturb_what_else_is_under_way(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server) as log:
        appends = [log.append(a_decision(namespace, number, job=f"job-{number}"), expect=0) for number in range(50)]
        forged = is_refused(log.connection, f"jobs.{namespace}.job-1.u-1.status.Forged")
        *sequences, _ = await asyncio.gather(*appends, forged)
        assert len(set(sequences)) == 50
        assert log.connected
