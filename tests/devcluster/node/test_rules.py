"""The pure parts: phases and conditions, names and DNS messages, expansion, images, atomic folders."""

import struct
from types import SimpleNamespace

import pytest

from devcluster.node import dns
from devcluster.node.dns import Names, resolver_file
from devcluster.node.environment import expand, without_tag
from devcluster.node.machine import Addresses
from devcluster.node.status import conditions, merge_conditions, phase
from devcluster.node.volumes import File, write

RUNNING = {"running": {}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}


def ended(code):
    return {"terminated": {"exitCode": code}}


def status(state, last=None, name="c"):
    return {"name": name, "state": state, "lastState": last or {}, "ready": "running" in state}


@pytest.mark.parametrize(
    ("policy", "init", "main", "over", "expected"),
    [
        pytest.param("Never", [], [RUNNING, WAITING], False, "Pending", id="not all have begun"),
        pytest.param("Never", [], [RUNNING, ended(1)], False, "Running", id="one still runs"),
        pytest.param("Never", [], [ended(0), ended(0)], False, "Succeeded", id="all ended well"),
        pytest.param("Never", [], [ended(0), ended(1)], False, "Failed", id="one failed"),
        pytest.param("OnFailure", [], [ended(0), ended(1)], False, "Running", id="one will run again"),
        pytest.param("Always", [], [ended(0)], False, "Running", id="always runs again"),
        pytest.param("Always", [], [ended(0)], True, "Succeeded", id="deleted, and ended well"),
        pytest.param("Always", [], [ended(0), WAITING], True, "Failed", id="deleted before one began"),
        pytest.param("Never", [ended(1)], [WAITING], False, "Failed", id="initialization failed for good"),
        pytest.param("Always", [ended(1)], [WAITING], False, "Pending", id="initialization is tried again"),
        pytest.param("Always", [RUNNING], [WAITING], False, "Pending", id="being initialized"),
    ],
)
def test_phase(policy, init, main, over, expected):
    statuses = [status(one) for one in main]
    assert phase(policy, [status(one) | {"ready": False} for one in init], statuses, ended=over) == expected


def test_a_container_that_waits_to_run_again_counts_as_running():
    assert phase("Always", [], [status(WAITING, last=ended(1))], ended=False) == "Running"


def test_conditions_name_what_is_not_ready():
    found = {one["type"]: one for one in conditions("Running", [], [status(RUNNING), status(WAITING, name="d")])}
    assert found["Initialized"]["status"] == "True"
    assert found["Ready"]["message"] == "containers with unready status: [d]"


def test_a_condition_keeps_its_time_until_it_changes():
    old = [{"type": "Ready", "status": "False", "reason": "R", "lastTransitionTime": "then"}]
    same, other = ({"type": "Ready", "status": value} for value in ("False", "True"))
    assert merge_conditions(old, [same], "now") == [same | {"reason": None, "lastTransitionTime": "then"}]
    assert merge_conditions(old, [other], "now") == [other | {"reason": None, "lastTransitionTime": "now"}]


def a_pod(hostname, address, *, serving=True, namespace="a"):
    return SimpleNamespace(
        namespace=namespace,
        labels={"job": "j"},
        hostname=hostname,
        subdomain="j",
        address=address,
        serving=serving,
    )


def a_service(uid="1", **spec):
    return {"metadata": {"uid": uid, "namespace": "a", "name": "j"}, "spec": {"selector": {"job": "j"}, **spec}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("j.a.svc.cluster.local", ["10.0.0.9", "10.0.0.10"], id="all that serve, in order"),
        pytest.param("w-0.j.a.svc.cluster.local", ["10.0.0.10"], id="one of them"),
        pytest.param("w-2.j.a.svc.cluster.local", None, id="one that does not serve"),
        pytest.param("w-0.j.b.svc.cluster.local", None, id="another namespace"),
        pytest.param("j.a.svc", None, id="an incomplete name"),
        pytest.param("x.w-0.j.a.svc.cluster.local", None, id="too long a name"),
        pytest.param("cluster.local", None, id="the domain itself"),
    ],
)
def test_names(name, expected):
    pods = [a_pod("w-0", "10.0.0.10"), a_pod("w-1", "10.0.0.9"), a_pod("w-2", "10.0.0.3", serving=False)]
    names = Names(lambda: [*pods, a_pod("w-3", "10.0.0.4", namespace="b"), a_pod("w-4", "")], {})
    names.service_changed(a_service())
    assert names.resolve(name) == expected


def test_a_service_that_publishes_unready_addresses_names_them_until_it_is_gone():
    names = Names(lambda: [a_pod("w-0", "10.0.0.1", serving=False)], {})
    names.service_changed(a_service("1", publishNotReadyAddresses=True))
    assert names.resolve("w-0.j.a.svc.cluster.local") == ["10.0.0.1"]
    names.service_changed(a_service("2", publishNotReadyAddresses=True))
    names.service_gone("1")
    assert names.resolve("j.a.svc.cluster.local") == ["10.0.0.1"]
    names.service_gone("2")
    assert names.resolve("j.a.svc.cluster.local") is None


def a_query(name, kind=1, *, edns=0):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    extra = b"\0" + struct.pack("!HHIH", 41, edns, 0, 0) if edns else b""
    header = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 1 if edns else 0)
    return header + labels + b"\0" + struct.pack("!HH", kind, 1) + extra


def reply_of(query, addresses=None, host=None):
    reply = dns.answer(query, lambda _: addresses, lambda _: host)
    number, flags, _, answers, _, _ = struct.unpack_from("!6H", reply)
    assert number == 7
    return flags & 15, answers, reply


@pytest.mark.parametrize(
    ("query", "addresses", "expected"),
    [
        pytest.param(a_query("J.a"), ["10.0.0.1", "10.0.0.2"], (0, 2), id="addresses"),
        pytest.param(a_query("j.a", 28), ["10.0.0.1"], (0, 0), id="the name exists, but has no IPv6 address"),
        pytest.param(a_query("nobody"), None, (3, 0), id="no such name"),
        pytest.param(a_query("j.a")[:-3], ["10.0.0.1"], (1, 0), id="a query that is cut off"),
        pytest.param(a_query("j.a"), [f"10.0.0.{n}" for n in range(200)], (0, 30), id="as many as fit"),
        pytest.param(a_query("j.a", edns=4096), [f"10.0.0.{n}" for n in range(200)], (0, 200), id="a larger answer"),
    ],
)
def test_dns_answers(query, addresses, expected):
    code, answers, reply = reply_of(query, addresses)
    assert (code, answers) == expected
    assert len(reply) <= 512 or expected[1] == 200


def test_dns_answers_reverse_queries():
    code, answers, reply = reply_of(a_query("4.3.2.10.in-addr.arpa", 12), host="w-0.j")
    assert (code, answers) == (0, 1)
    assert reply.endswith(b"\x03w-0\x01j\0")


def test_dns_does_not_answer_answers():
    _, _, reply = reply_of(a_query("j"), ["10.0.0.1"])
    assert dns.answer(reply, lambda _: [], lambda _: None) is None
    assert dns.answer(b"", lambda _: [], lambda _: None) is None


def test_the_dns_config_of_a_pod_comes_last():
    config = {"searches": ["j.a.svc.cluster.local"], "options": [{"name": "ndots", "value": "2"}]}
    assert resolver_file({"dnsConfig": config}, "a", "10.0.0.1") == (
        "search a.svc.cluster.local svc.cluster.local cluster.local j.a.svc.cluster.local\n"
        "nameserver 10.0.0.1\n"
        "options ndots:2\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(A)/$(B)", "1/$(B)", id="what is unknown stays"),
        pytest.param("$$(A) $$$(A)", "$(A) $1", id="two dollars are one"),
        pytest.param("$A ${A} $( $", "$A ${A} $( $", id="other dollars are nothing"),
    ],
)
def test_expand(text, expected):
    assert expand(text, {"A": "1"}) == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param("muster/train:v1", "muster/train", id="a tag"),
        pytest.param("host:5000/train", "host:5000/train", id="a port is no tag"),
        pytest.param("host:5000/train:1@sha256:ab", "host:5000/train", id="a digest"),
    ],
)
def test_images_are_compared_without_tag(image, expected):
    assert without_tag(image) == expected


def test_a_folder_is_written_only_when_it_changes(tmp_path):
    files = {"a": File(b"1", 0o644), "deep/b": File(b"2", 0o400)}
    assert write(tmp_path, files)
    version = (tmp_path / "..data").readlink()
    assert not write(tmp_path, files)
    assert (tmp_path / "..data").readlink() == version
    assert write(tmp_path, {"a": File(b"1", 0o600)})
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["a"]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert len([*tmp_path.iterdir()]) == 3


def test_addresses_are_used_again_as_late_as_possible():
    addresses = Addresses("10.0.0.0/29")
    taken = [addresses.take() for _ in range(3)]
    assert taken == ["10.0.0.2", "10.0.0.3", "10.0.0.4"]
    addresses.give_back("10.0.0.2")
    assert [addresses.take() for _ in range(3)] == ["10.0.0.5", "10.0.0.6", "10.0.0.2"]
