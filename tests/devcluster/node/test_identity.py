"""Whom containers run as, and what they may, as their security contexts say."""

import os

import pytest

from devcluster.node.environment import BadConfiguration, identity
from tests.devcluster.node.kit import Space

RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")


def a_pod(**context: object) -> dict[str, object]:
    return {"spec": {"securityContext": context}}


def test_a_container_that_must_not_be_root_says_who_it_is():
    with pytest.raises(BadConfiguration, match="runAsNonRoot"):
        identity(a_pod(runAsNonRoot=True), {})


def test_a_container_may_say_otherwise_than_its_pod():
    assert identity(a_pod(runAsNonRoot=True, runAsUser=1), {"securityContext": {"runAsUser": 0, "runAsNonRoot": False}})


def test_rights_of_ones_own_choice_are_refused():
    with pytest.raises(BadConfiguration, match="NET_ADMIN"):
        identity(a_pod(), {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}})


@as_root
async def test_the_restricted_profile_holds(space: Space):
    await space.config("settings", key="value")
    volumes = [
        {"name": "settings", "configMap": {"name": "settings", "defaultMode": 0o400}},
        {"name": "tmp", "emptyDir": {}},
    ]
    mounts = [{"name": "settings", "mountPath": "/settings"}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    said = await space.output(
        "restricted",
        "id -u; id -g; id -G; cat /settings/key; echo; echo hello > /tmp/file && cat /tmp/file; "
        "grep -E 'CapBnd|NoNewPrivs' /proc/self/status; python -c 'import msgspec'; touch /file",
        volumes=volumes,
        securityContext={"fsGroup": 65533},
        container={"securityContext": RESTRICTED, "volumeMounts": mounts},
    )
    assert said.splitlines() == [
        "65532",
        "65532",
        "65532 65533",
        "value",
        "hello",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "touch: cannot touch '/file': Read-only file system",
    ]
