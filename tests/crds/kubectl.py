"""kubectl as an administrator of a real control plane."""

import json
from pathlib import Path
from typing import Any

from devcluster import binaries
from devcluster.cluster import ADMIN, DevelopmentCluster
from tests.kit.commands import Ended, established, run

CRDS = Path(__file__).parents[2] / "crds"
PATIENCE_SECONDS = 180.0
"""For one command: the API server takes seconds to delete a definition, and many more on a busy machine."""


async def kubectl(plane: DevelopmentCluster, *words: str, given: str = "", fails: bool = False) -> str:
    """Its output, or with `fails` its complaint."""
    ended = await tried(plane, *words, given=given)
    assert bool(ended.code) == fails, f"kubectl {' '.join(words)}: {ended.out}{ended.complaint}"
    return ended.complaint if fails else ended.out


async def tried(plane: DevelopmentCluster, *words: str, given: str = "") -> Ended:
    """kubectl, however it ends."""
    return await run(*_program(plane), *words, given=given, patience=PATIENCE_SECONDS)


def _program(plane: DevelopmentCluster) -> tuple[str, ...]:
    return str(binaries.kubectl()), "--kubeconfig", str(plane.kubeconfig(ADMIN))


async def install(plane: DevelopmentCluster, *more: str) -> None:
    """Our definitions, and `more` of them as YAML, established when this returns; those of before give way."""
    await kubectl(plane, "apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    await established(*_program(plane), of=("-f", str(CRDS)))
    for definition in more:
        await kubectl(plane, "apply", "--server-side", "-f", "-", given=definition)
        await established(*_program(plane), of=("-f", "-"), given=definition)


async def conditions(plane: DevelopmentCluster) -> dict[str, dict[str, str]]:
    """Type → status of the conditions of each of our definitions."""
    found: dict[str, Any] = json.loads(await kubectl(plane, "get", "-f", str(CRDS), "-o", "json"))
    return {
        item["metadata"]["name"]: {known["type"]: known["status"] for known in item["status"]["conditions"]}
        for item in found["items"]
    }
