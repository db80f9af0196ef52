"""Whose word counts for who asks: that of the front proxy alone."""

import json

import pytest

from services.history.core import Person, Trust
from shared.errors import Refused

DATA = {
    "requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
TRUST = Trust.read(DATA)
HEADERS = [
    ("x-remote-user", "ann"),
    ("X-Remote-Group", "team-a"),
    ("X-Remote-Group", "system:authenticated"),
    ("X-Remote-Uid", "7"),
    ("X-Remote-Extra-Acme.com%2Fproject", "one"),
    ("X-Remote-Extra-Acme.com%2Fproject", "two"),
    ("Accept", "application/json"),
]


def test_the_front_proxy_says_who_asks_with_groups_and_extras():
    assert TRUST.person("front-proxy-client", HEADERS) == Person(
        "ann", "7", ("team-a", "system:authenticated"), (("acme.com/project", ("one", "two")),)
    )


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        pytest.param(None, HEADERS, id="no certificate"),
        pytest.param("kubelet", HEADERS, id="another name of the same authority"),
        pytest.param("", HEADERS, id="a certificate without a name"),
        pytest.param("front-proxy-client", HEADERS[1:], id="no user"),
    ],
)
def test_nobody_else_is_believed(name: str | None, headers: list[tuple[str, str]]):
    assert TRUST.person(name, headers) is None


def test_without_allowed_names_any_certificate_of_the_authority_counts():
    trust = Trust.read({**DATA, "requestheader-allowed-names": "[]"})
    assert trust.person("anything", HEADERS) is not None
    assert trust.person(None, HEADERS) is None


@pytest.mark.parametrize(
    ("name", "tenant"),
    [
        ("ann", "ann"),
        ("system:serviceaccount:team-a:one", "system:serviceaccount:team-a"),
        ("system:serviceaccount:team-a:two", "system:serviceaccount:team-a"),
        ("oidc:system:serviceaccount:team-a:one", "oidc:system:serviceaccount:team-a:one"),
    ],
)
def test_the_service_accounts_of_a_namespace_are_one_tenant(name: str, tenant: str):
    assert Person(name).share[0] == tenant


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="no front proxy"),
        pytest.param({**DATA, "requestheader-client-ca-file": " "}, id="no authority"),
        pytest.param({**DATA, "requestheader-allowed-names": json.dumps({"a": 1})}, id="no list"),
        pytest.param({**DATA, "requestheader-group-headers": "X-Remote-Group"}, id="no JSON"),
    ],
)
def test_a_config_map_without_a_front_proxy_is_refused(data: dict[str, str]):
    with pytest.raises(Refused, match="kube-system/extension-apiserver-authentication"):
        Trust.read(data)
