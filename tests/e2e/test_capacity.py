"""A job trains with the workers for which the real kube-scheduler finds room, and loses places by priority.

What people see of it stands in `CAPACITY.md`, which `REWRITE_GOLDEN=1` writes anew.
"""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import HOSTS
from tests.kit.operator import FOR_EVER, UNTIL_TOLD, Operator, a_job, launcher_that

CLUSTERS = [HOSTS[1]]
pytestmark = [pytest.mark.real, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PLACE = "example.com/place"
"""A resource of which each worker needs one."""
ONE = {"limits": {PLACE: "1"}}

PAGE = Path(__file__).with_name("CAPACITY.md")
ABOUT = f"""# A job that takes the room there is

What a real run printed (`tests/e2e/test_capacity.py`, [the rules](../../docs/capacity.md)): kube-apiserver, its
controllers and the kube-scheduler {{version}}, and a node that has places (`{PLACE}`), of which a worker needs one.
"""


class Page:
    """What a person who follows the job asks, and is answered."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.parts: list[str] = []

    async def tells(self, title: str, *questions: str) -> None:
        """Ask this now."""
        said = []
        for question in ("kubectl get trainingjob resnet", *questions):
            program, *words = question.split()
            answer = await (self.operator.kubectl if program == "kubectl" else self.operator.muster)(*words)
            said += [f"$ {question}", answer.rstrip()]
        self.parts.append("\n".join([f"\n## {title}\n", "```console", *said, "```\n"]))

    async def is_as_recorded(self, job: dict[str, Any]) -> None:
        """Assert that the page has this run's steps and rows; times and what lies between differ with each run."""
        version = json.loads(await self.operator.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
        manifest = f"\n```yaml\n{yaml.safe_dump(job, sort_keys=False)}```\n"
        text = "".join([ABOUT.format(version=version), manifest, *self.parts])
        if os.environ.get("REWRITE_GOLDEN") == "1":
            PAGE.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
        assert rows(text) == rows(PAGE.read_text())


def rows(page: str) -> list[list[str]]:
    """The titles, and of each answer of kubectl the job's row without its age."""
    found = re.findall(r"^(?:## .*|\$ .*|resnet .*)$", page, re.MULTILINE)
    return [[word for word in line.split() if not re.fullmatch(r"(\d+[dhms])+", word)] for line in found]


async def give(operator: Operator, places: int) -> None:
    """Let the node have so many of them."""
    node = (await operator.kubectl("get", "nodes", "-o", "name")).split()[0]
    room = {PLACE: str(places)}
    patch = json.dumps({"status": {"capacity": room, "allocatable": room}})
    await operator.kubectl("patch", node, "--subresource=status", "--type=merge", "-p", patch)


def by_capacity(name: str, **elasticity: Any) -> dict[str, Any]:
    job = a_job(name, UNTIL_TOLD, workers=6, elasticity={"size": "Capacity", **elasticity})
    worker = job["spec"]["etReplicaSpecs"]["worker"]
    worker["minReplicas"] = 2
    (container,) = worker["template"]["spec"]["containers"]
    worker["template"]["spec"]["containers"] = [container | {"resources": ONE}]
    return job


def of_priority(name: str) -> dict[str, Any]:
    spec = {"priorityClassName": "urgent", "containers": [launcher_that(FOR_EVER) | {"resources": ONE}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def trains_with(operator: Operator, number: int) -> None:
    def so(status: dict[str, Any]) -> bool:
        return len(status.get("currentWorkers") or ()) == number and status.get("phase") == "Running"

    await operator.shows(TRAININGJOBS, "resnet", so, f"Running with {number}")


async def has_none(operator: Operator, phase: str, workers: str) -> None:
    """All of its pods are gone, and no row of it changes now."""

    def so(status: dict[str, Any]) -> bool:
        return (status.get("phase"), status.get("workers")) == (phase, workers)

    await operator.shows(TRAININGJOBS, "resnet", so, f"{phase} with {workers}")


async def test_a_job_takes_the_room_there_is_and_gives_it_to_those_of_higher_priority(operator: Operator):
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    await operator.apply(urgent | {"value": 1000})
    await give(operator, 3)
    page, job = Page(operator), by_capacity("resnet", settleSeconds=2, growSeconds=1)
    begun = time.monotonic()
    await operator.apply(job)
    await trains_with(operator, 3)
    print(f"with 3 of 6 after {time.monotonic() - begun:.2f} s, of which 2 s to settle")
    await page.tells("It starts with three of six, as there are three places", "muster why trainingjob/resnet")
    begun = time.monotonic()
    await give(operator, 4)
    await trains_with(operator, 4)
    print(f"with the fourth {time.monotonic() - begun:.2f} s after its place was there")
    await page.tells("A fourth place comes")
    begun = time.monotonic()
    await operator.apply(of_priority("first"))
    await trains_with(operator, 3)
    print(f"with 3 again {time.monotonic() - begun:.2f} s after a pod of higher priority was created")
    told = "its size: its resource asks for 6 workers; the kube-scheduler finds no node for 3"
    assert told in await operator.muster("why", "trainingjob/resnet")
    assert (await operator.job("resnet")).retries.disruptions == 0
    await page.tells("A pod of higher priority takes a place")
    begun = time.monotonic()
    await operator.apply(of_priority("second"), of_priority("third"))
    await operator.phase("Restarting", TRAININGJOBS, "resnet")
    print(f"below its minimum it ended {time.monotonic() - begun:.2f} s after two more were created")
    assert "MinimumUnschedulable" in await operator.muster("why", "trainingjob/resnet")
    await has_none(operator, "Restarting", "0/6")
    await page.tells(
        "Two more are preempted: one is fewer than its minimum, and it waits", "muster why trainingjob/resnet"
    )
    begun = time.monotonic()
    await operator.kubectl("delete", "pod", "first", "second", "third", "--grace-period=0", "--force")
    await trains_with(operator, 4)
    print(f"with 4 in its next attempt {time.monotonic() - begun:.2f} s after they went")
    members = [json.loads(s.body)["members"] for s in await operator.log() if s.subject.endswith("HostsPublished")]
    assert all(sum(high - low + 1 for low, high in each) >= 2 for each in members), members
    await page.tells("The others are gone: its next attempt has four places")
    await operator.tell_to_end("resnet")
    await operator.phase("Succeeded", TRAININGJOBS, "resnet")
    await has_none(operator, "Succeeded", "0/0")
    await page.tells("It ends", "muster history trainingjob/resnet")
    await page.is_as_recorded(job)
    await operator.assert_replayed("resnet")
