"""The embedded API server and the real one give the same answers to the same calls.

`SEED=n` plays that one sequence again; `SEQUENCES=n` plays so many.
"""

import os
from collections import Counter
from typing import Any

import pytest

from devcluster.cluster import ADMIN, Devcluster
from devcluster.controlplane import ControlPlane
from tests.contract.differential.comparing import Comparison, differences
from tests.contract.differential.kinds import KINDS
from tests.contract.differential.playing import Comparable
from tests.contract.differential.sequences import LONGEST, sequence
from tests.devcluster.apiserver.client import client_of

SEQUENCES = int(os.environ.get("SEQUENCES", "400"))
"""400 take about half a minute."""


@pytest.mark.real
async def test_both_servers_answer_alike(embedded_server: Devcluster, real_server: ControlPlane) -> None:
    seeds = [int(os.environ["SEED"])] if "SEED" in os.environ else range(SEQUENCES)
    async with (
        client_of(real_server.kubeconfig(ADMIN)) as real,
        client_of(embedded_server.kubeconfig(ADMIN)) as embedded,
    ):
        found = await Comparison(real, embedded).seeds(seeds)
    assert not found, "\n\n".join(["", *map(str, found)])


def test_a_seed_is_one_sequence() -> None:
    assert list(map(str, sequence(7))) == list(map(str, sequence(7)))
    assert list(map(str, sequence(7))) != list(map(str, sequence(8)))


def test_sequences_reach_every_kind_in_every_way() -> None:
    steps = [step for seed in range(600) for step in sequence(seed)]
    assert max(len(sequence(seed)) for seed in range(300)) <= LONGEST
    reached = Counter((step.plural, step.method) for step in steps)
    wanted = {(kind.plural, method) for kind in KINDS for method in ("POST", "GET", "PUT", "PATCH", "DELETE")}
    assert wanted <= set(reached)
    assert {"status", "scale"} <= {step.subresource for step in steps}


def answer(uid: str, version: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": "a", "uid": uid, "resourceVersion": str(version), "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {"code": 200, "body": {"kind": "ConfigMap", "metadata": metadata, **more}, "warnings": []}


ONE, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def test_what_only_a_server_knows_is_no_difference() -> None:
    one = Comparable("ns-1").all([answer(ONE, 5), answer(ONE, 9)])
    assert one == Comparable("ns-2").all([answer(OTHER, 70), answer(OTHER, 71)])


@pytest.mark.parametrize(
    ("other", "where"),
    [
        pytest.param([answer(OTHER, 70), answer(OTHER, 70)], "[1].body.metadata.resourceVersion", id="no new version"),
        pytest.param([answer(OTHER, 70), answer(ONE, 71)], "[1].body.metadata.uid", id="another object"),
        pytest.param([answer(OTHER, 70), answer(OTHER, 71, data={})], "[1].body.data", id="more than there was"),
        pytest.param([answer(OTHER, 70), answer(OTHER, 71) | {"code": 201}], "[1].code", id="another code"),
    ],
)
def test_everything_else_is_one(other: list[Any], where: str) -> None:
    one = Comparable("ns-1").all([answer(ONE, 5), answer(ONE, 9)])
    [line] = differences(one, Comparable("ns-2").all(other))
    assert line.startswith(f"{where}: real ")
