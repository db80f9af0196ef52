"""`python -m tests.security.under_attack`: what each service holds while a tenant attacks, and how another one fares.

Each attack runs for some minutes against four services, a real control plane and a real NATS server of its own, as fast
as one client can.  Older objects are deleted meanwhile, so that the API server and not the attack lasts.
"""

import argparse
import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import uvloop
import yaml

from devcluster.binaries import MissingProgram
from shared.frameworks.scale_requests import GROUP
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import JOB_UID
from shared.ports import HOST
from shared.telemetry.logs import configure
from tests.bench.real.client import CallError, Client, encode
from tests.bench.real.manifests import collection, training_job
from tests.bench.real.processes import memory
from tests.bench.real.world import World, patiently, progress
from tests.kit.tables import Place

VALUES = Path(__file__).parents[2] / "deploy/helm/muster/values.yaml"
IN_FLIGHT = 8
"""Requests of the attacker at a time: enough to keep the API server busy."""
PROBE_SECONDS = 15.0
"""Seconds between two jobs of the other tenant."""

THEIRS, OURS = "attacker", "tenant"

Document = dict[str, Any]


class Attack(NamedTuple):
    """What is created over and over."""

    what: str
    path: str
    make: Callable[[int], Document]
    kept: int
    """How many of the newest objects are left."""


def _forged(number: int, *, kind: str, name: str, uid: str) -> Document:
    """A ConfigMap that claims to be a job's."""
    owner = {"apiVersion": TRAININGJOBS.api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
    meta = {"name": f"forged-{number}", "labels": {JOB_UID: uid}, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def _request(number: int, kind: str, **spec: Any) -> Document:
    meta = {"name": f"request-{number}"}
    selector = {"name": f"nothing-{number}"}
    return {
        "apiVersion": TRAININGJOBS.api_version,
        "kind": kind,
        "metadata": meta,
        "spec": {"selector": selector, **spec},
    }


NAMES = [f"nothing-worker-{index}-{'x' * 40}" for index in range(1_000)]
ATTACKS = {
    "long-names": Attack(
        "forged owners with names of 1 MB",
        collection("configmaps", THEIRS),
        lambda number: _forged(number, kind="Gadget", name="x" * 1_000_000, uid=f"uid-{number}"),
        50,
    ),
    "owners": Attack(
        "forged owners, a job of its own each",
        collection("configmaps", THEIRS),
        lambda number: _forged(number, kind="TrainingJob", name=f"job-{number}", uid=f"uid-{number}"),
        5_000,
    ),
    "scale-ins": Attack(
        "ScaleIns with 1,000 names, of no job",
        collection("scaleins", THEIRS, GROUP),
        lambda number: _request(number, "ScaleIn", toDelete={"podNames": NAMES}),
        1_000,
    ),
    "scale-outs": Attack(
        "ScaleOuts of no job",
        collection("scaleouts", THEIRS, GROUP),
        lambda number: _request(number, "ScaleOut", toAdd={"count": 1}),
        5_000,
    ),
    "jobs": Attack(
        "jobs",
        collection("trainingjobs", THEIRS, GROUP),
        lambda number: training_job(f"job-{number}", THEIRS, 1),
        5_000,
    ),
}


class Outcome(NamedTuple):
    what: str
    minutes: float
    made: int
    peaks: dict[str, float]
    """MiB of each service."""
    bytes: int
    """What the log grew by."""
    slowest: tuple[float, float]
    """Seconds until the other tenant's slowest job had a pod, and until the API server had accepted that job."""


async def attacked(attack: Attack, minutes: float) -> Outcome:
    async with World() as world:
        for name in (THEIRS, OURS):
            await world.namespace(name)
        progress(f"{attack.what}: {minutes:g} minutes")
        began, before = time.monotonic(), await _log_bytes(world)
        until = began + minutes * 60
        numbers, there = iter(range(sys.maxsize)), deque[int]()
        made = 0

        async def work() -> None:
            nonlocal made
            while time.monotonic() < until:
                number = next(numbers)
                document = attack.make(number)
                await _sent(world.client, "POST", attack.path, encode(document))
                made += 1
                there.append(number)
                if len(there) > attack.kept:
                    name = attack.make(there.popleft())["metadata"]["name"]
                    await _sent(world.client, "DELETE", f"{attack.path}/{name}")

        slowest = (0.0, 0.0)

        async def probe() -> None:
            nonlocal slowest
            for number in range(sys.maxsize):
                await asyncio.sleep(max(0.0, min(PROBE_SECONDS, until - time.monotonic())))
                if time.monotonic() >= until:
                    return
                name = f"ours-{number}"
                # When it runs is a matter of nodes, too, on which the attacker's pods stand in line with all others.
                created = world.pods.seen(1, lambda _, pod, name=name: pod.metadata.name.startswith(name))
                sent = time.perf_counter()
                path = collection("trainingjobs", OURS, GROUP)
                await _sent(world.aside, "POST", path, encode(training_job(name, OURS, 1)))
                accepted = time.perf_counter() - sent
                took = await patiently(created) - sent
                progress(f"  another tenant's job got its pod after {took:.2f} s, accepted after {accepted:.2f} s")
                slowest = max(slowest, (took, accepted))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(probe())
            for _ in range(IN_FLIGHT):
                tasks.create_task(work())
        took = (time.monotonic() - began) / 60
        peaks = {name: memory(service.pid).peak for name, service in world.services.items()}
        return Outcome(attack.what, took, made, peaks, await _log_bytes(world) - before, slowest)


async def _sent(client: Client, verb: str, path: str, body: bytes | None = None) -> None:
    """Send until the API server answers: under such load it may leave a connection waiting for a minute."""
    while True:
        try:
            await client.call(verb, path, body)
        except CallError as error:
            if error.status >= 500:
                progress(f"  {error}")
                continue
            # It may have acted without an answer, and the garbage collector may have been faster.
            if error.status != (409 if verb == "POST" else 404):
                raise
        except (aiohttp.ClientError, TimeoutError) as error:
            progress(f"  {verb} without an answer: {error!r}")
            continue
        return


async def _log_bytes(world: World) -> int:
    """The size of the log, as the watcher tells it: it looks every ten seconds."""
    await asyncio.sleep(10)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{world.health['watcher']}/metrics") as said,
    ):
        lines = (await said.text()).splitlines()
    return int(
        float(next(line for line in lines if line.startswith("muster_log_bytes") and '"JOBS"' in line).split()[-1])
    )


def limit_mebibytes() -> int:
    """The chart's limit of a service's memory."""
    words = yaml.safe_load(VALUES.read_text())["resources"]["limits"]["memory"]
    return int(words.removesuffix("Gi")) * 1024


def markdown(outcomes: list[Outcome]) -> str:
    most = limit_mebibytes()
    memory_of = f"most that a service held (limit {most:,} MiB)"
    waits = "slowest first pod of another | of that until its job was accepted"
    head = f"| attack | minutes | made | {memory_of} | log | {waits} |"
    lines = [head, "| --- | ---: | ---: | --- | ---: | ---: | ---: |"]
    for known in outcomes:
        service = max(known.peaks, key=known.peaks.__getitem__)
        held = f"{known.peaks[service]:.0f} MiB ({service})"
        size = f"{known.bytes / 2**20:.1f} MiB"
        took, accepted = known.slowest
        cells = (
            known.what,
            f"{known.minutes:.1f}",
            f"{known.made:,}",
            held,
            size,
            f"{took:.2f} s",
            f"{accepted:.2f} s",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.security.under_attack", description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="|".join(ATTACKS), help="which ones; all of them without any")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each")
    place = Place(parser, "under-attack")
    given = parser.parse_args()
    put = place.of(given)
    if unknown := set(given.attacks) - set(ATTACKS):
        parser.error(f"{', '.join(sorted(unknown))}: none of {', '.join(ATTACKS)}")
    configure("attack", style="console", level="error")
    try:
        outcomes = [uvloop.run(attacked(ATTACKS[name], given.minutes)) for name in given.attacks or ATTACKS]
    except MissingProgram as missing:
        sys.exit(str(missing))
    table = markdown(outcomes)
    print(table)
    put(table)
    if any(peak > limit_mebibytes() for known in outcomes for peak in known.peaks.values()):
        sys.exit("a service held more than the chart's limit")


if __name__ == "__main__":
    main()
