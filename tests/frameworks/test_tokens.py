"""Tokens of service accounts: only pods whose template asks for one have it."""

from typing import Any

import pytest

from shared.frameworks.pods import with_token_if_asked


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="no wish"),
        pytest.param({"serviceAccountName": ""}, id="an empty name"),
        pytest.param({"automountServiceAccountToken": None, "serviceAccountName": None}, id="nulls"),
    ],
)
def test_a_pod_has_no_token_if_its_template_has(spec: dict[str, Any]):
    assert with_token_if_asked({"spec": spec})["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "spec",
    [
        {"automountServiceAccountToken": True},
        {"automountServiceAccountToken": False, "serviceAccountName": "trainer"},
        {"serviceAccountName": "trainer"},
        {"serviceAccount": "trainer"},
    ],
    ids=str,
)
def test_a_pod_is_as_its_template_wishes(spec: dict[str, Any]):
    assert with_token_if_asked({"spec": spec})["spec"] == spec
