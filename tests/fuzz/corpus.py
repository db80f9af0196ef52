"""The inputs to begin with: recorded events, objects as API servers send them, and what was found before."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from shared.eventlog import Entry, wire
from shared.telling.reading import line_of
from tests.audit.conftest import a_list, an_event
from tests.frameworks import documents
from tests.frameworks.full import FULL_IN, FULL_JOB, FULL_OUT
from tests.histories.recorded import recordings
from tests.takeover.recorded import recorded

FOUND = Path(__file__).parent / "found"
"""A folder for each target, with every input that it once could not read."""
LONGEST_LOG = 60
"""Events of a log: what makes them different comes early."""

Document = dict[str, Any]


def seeds(target: str) -> Sequence[bytes]:
    """The inputs of a target; those that were found among them."""
    return (*_begin()[target], *(file.read_bytes() for file in found(target)))


def found(target: str) -> list[Path]:
    return sorted((FOUND / target).glob("*"))


@cache
def _begin() -> Mapping[str, Sequence[bytes]]:
    logs = [[event for event in each.events() if ".none." not in event.subject] for each in recordings("0.1.0")]
    events = {event.subject.rpartition(".")[2]: event for log in logs for event in log}
    objects = [*_objects()]
    lines = [_line(each) for each in objects]
    versioned = [each | {"metadata": each["metadata"] | {"resourceVersion": "12"}} for each in objects]
    return {
        "event": [b"%s\n%s" % (tag.encode(), event.body) for tag, event in sorted(events.items())],
        "fold": [b"\n".join(event.body for event in log[:LONGEST_LOG]) for log in logs],
        "headers": [*_headers(events.values())],
        "watch": [
            b"\n".join(
                [
                    *(_line({"type": kind, "object": each}) for kind in ("ADDED", "MODIFIED", "DELETED")),
                    _line({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}),
                    _line({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}),
                ]
            )
            for each in versioned
        ],
        "list": [
            _line({"metadata": {"resourceVersion": "99", "continue": "more"}, "items": versioned[start : start + 3]})
            for start in range(0, len(versioned), 3)
        ],
        "document": lines,
        "answer": [*_answers()],
        "audit": [a_list(an_event("create", code=201), an_event(), an_event("delete"), an_event(changed=False))],
        "command": [b"horovodrun\0-np\0002\0resnet-worker-1\n" + answer.partition(b"\n")[2] for answer in _answers()],
        "kubeconfig": [*_kubeconfigs()],
        "settings": [
            b"NATS_URL=tls://nats:4222\nMUSTER_LEASE=5\nMUSTER_NAMESPACE=team-a\nMUSTER_KINDS=TrainingJob,TFJob",
            b"MUSTER_HEALTH_PORT=8080\nNATS_USER=watcher\nNATS_PASSWORD=s3cr3t\nMUSTER_LOG_FORMAT=json",
        ],
        "texts": [
            b"1.2.0rc1",
            b"tfjob.kubeflow.org/digits",
            b"log-1/17:abc",
            _line({"services": [{"service": "watcher", "held": {"a": "b"}}]}),
            *(line_of(event).encode() for event in events.values()),
            *(event.subject.encode() for event in events.values()),
        ],
    }


def _objects() -> Iterator[Document]:
    yield from (FULL_JOB, FULL_IN, FULL_OUT, documents.pytorch_job(policy={"minReplicas": 1, "maxReplicas": 4}))
    yield from (documents.tf_job(), documents.mpi_job(), documents.mpi_job(v2beta1=True), documents.kubeflow_mx_job())
    yield from (documents.fioravanzo_job(), documents.mpba_job(), documents.mlkube_job())
    for name in ("et-operator-running", "pytorchjob-elastic", "tfjob-running"):
        yield from recorded(name)


def _headers(events: Any) -> Iterator[bytes]:
    reply = b"$JS.ACK.JOBS.reader-1.1.%d.1.1700000000000000000.0"
    for event in events:
        known = {name: getattr(event, name) for name in ("subject", "event_id", "time", "body", "basis", "optional")}
        written = wire.headers(Entry(**known), log="log", expect=event.sequence)
        yield b"%s\nNATS/1.0\r\n%s\r\n" % (
            reply % event.sequence,
            "".join(f"{name}: {value}\r\n" for name, value in written.items()).encode(),
        )
    yield b"\nNATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 4\r\nNats-Last-Stream: 9\r\n\r\n"
    yield b"\nNATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 5\r\nNats-Pending-Bytes: 0\r\n\r\n"
    yield b"\nNATS/1.0 503\r\n\r\n"
    yield b"$JS.ACK.hub.account.JOBS.reader-1.1.7.3.1700000000000000000.4.token\nNATS/1.0\r\nKV-Operation: DEL\r\n\r\n"


def _answers() -> Iterator[bytes]:
    invalid = [{"reason": "FieldValueInvalid", "message": "no", "field": "metadata.uid"}]
    for status in (
        {"code": 409, "reason": "AlreadyExists", "message": "there", "details": {"name": "a"}},
        {"code": 422, "reason": "Invalid", "message": "no", "details": {"causes": invalid}},
        {"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}},
        {"code": 403, "reason": "Forbidden", "message": 'User "a" cannot get: exceeded quota: b'},
        {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}},
        {"status": "Success"},
    ):
        yield b"3\n" + _line({"kind": "Status", **status})
    yield b"\n<html>502 Bad Gateway</html>"


def _kubeconfigs() -> Iterator[bytes]:
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": "ca.crt"}
    user = {"token": "secret", "exec": {"command": "login", "args": ["a"], "env": [{"name": "A", "value": "b"}]}}
    config = {
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "b", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "a", "user": "b", "namespace": "team-a"}}],
        "current-context": "c",
    }
    # As YAML alone: its reader takes seconds for a thousand levels, which JSON is given here.
    yield yaml.safe_dump(config).encode()


def _line(value: object) -> bytes:
    return msgspec.json.encode(value)
