"""Two small kinds as a user's package would bring them: one with roles by name, two versions, suspension and a size
that changes, and one whose `spec` is a list.
"""

from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Definition, Document, Framework, Place, Scale, Version
from shared.frameworks.pods import pod_of
from shared.frameworks.reading import Fields
from shared.frameworks.schemas import (
    AGE,
    BOOLEAN,
    BY_CONDITIONS,
    POD_TEMPLATE,
    STATUS_WITH_CONDITIONS,
    by_phase,
    choice,
    fixed,
    name_rule,
    number,
)
from shared.frameworks.templates import training_container
from shared.frameworks.training_status import condition
from shared.job.naming import JOB_UID, RESTART
from shared.job.spec import WORKER, Handling, JobSpec, Problem, RoleSpec
from shared.job.state import Job

GROUP = "swarms.test.muster.dev"
SWARMS = Resource(GROUP, "v1", "swarms", "Swarm", Custom)
HIVES = Resource("hives.test.muster.dev", "v1", "hives", "Hive", Custom)
QUEEN, BEE = "queen", WORKER

_QUEEN: Document = {"type": "object", "required": ["template"], "properties": {"template": POD_TEMPLATE}}
_BEES: Document = {
    "type": "object",
    "required": ["template"],
    "properties": {"replicas": number(1, 100, "How many; 1 when absent."), "template": POD_TEMPLATE},
}
_SPEC: Document = {
    "type": "object",
    "required": ["roles"],
    "properties": {
        "roles": {"type": "object", "required": ["queen"], "properties": {"queen": _QUEEN, "bee": _BEES}},
        "runPolicy": {"type": "object", "properties": {"suspend": BOOLEAN}},
    },
}
_KEPT = "the template of a running swarm cannot be changed; suspend it first"


class Swarm(Framework):
    """One queen, whose end is the job's, and bees that come and go."""

    resource = SWARMS
    suspend_path = ".spec.runPolicy.suspend"

    @property
    def definition(self) -> Definition | None:
        return Definition(
            "A queen and her bees.",
            _SPEC,
            short_names=("sw",),
            columns=({"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}, AGE),
            rules=(
                name_rule("[a-z]([-a-z0-9]*[a-z0-9])?", 40, "name the swarm with at most 40 characters"),
                fixed("spec.roles.queen.template", _KEPT, within="spec.roles.queen.template", free=BY_CONDITIONS),
                fixed("spec.roles.bee.template", _KEPT, within="spec.roles", free=BY_CONDITIONS),
            ),
            status=STATUS_WITH_CONDITIONS,
            scale=Scale(".spec.roles.bee.replicas"),
            versions=(Version("v1beta1"), Version("v1alpha1", spec={"type": "object", "properties": {}} | _SPEC)),
        )

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        problems: list[Problem] = []
        spec = Fields(manifest.spec, "spec", problems)
        roles = spec.part("roles")
        queen, bee = roles.part("queen"), roles.part("bee")
        training_container(queen)
        if roles.has("bee"):
            training_container(bee)
        bees = bee.integer("replicas", least=1, most=100) or 1
        parsed = JobSpec(
            framework="swarm",
            roles=(
                RoleSpec(name=QUEEN, replicas=1, container="main"),
                RoleSpec(name=BEE, replicas=bees if roles.has("bee") else 0, min_replicas=0, container="main"),
            ),
            handling=Handling(judge=QUEEN, hosts_files=False),
            attach_mode="",
            suspend=spec.part("runPolicy").boolean("suspend"),
            restart=(manifest.metadata.annotations or {}).get(RESTART, ""),
        )
        return tuple(problems) or parsed

    def pod(self, manifest: Custom, spec: JobSpec, place: Place) -> Document:
        role = "queen" if place.slot.role == QUEEN else "bee"
        return pod_of(self, manifest.spec["roles"][role]["template"], place, search=True)

    def status(self, job: Job) -> Document:
        return {
            "conditions": [condition(known) for known in job.conditions],
            "replicas": len(job.workers),
            "selector": f"{JOB_UID}={job.key.uid}",
        }


class Hive(Framework):
    """A list of roles, neither suspended nor scaled."""

    resource = HIVES

    @property
    def definition(self) -> Definition | None:
        role: Document = {
            "type": "object",
            "required": ["template"],
            "properties": {"replicas": number(1, 100), "role": choice("QUEEN", "BEE"), "template": POD_TEMPLATE},
        }
        return Definition(
            "A list of roles.",
            {"type": "array", "maxItems": 8, "items": role},
            columns=(AGE,),
            rules=(fixed("spec", "a hive cannot be changed", within="spec", free=by_phase("")),),
            status={"type": "object", "properties": {"phase": {"type": "string"}}},
        )

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        problems: list[Problem] = []
        roles = Fields({"spec": manifest.spec}, "", problems).parts("spec")
        for role in roles:
            training_container(role)
        parsed = JobSpec(
            framework="hive",
            roles=(RoleSpec(name=QUEEN, replicas=len(roles), container="main"),),
            handling=Handling(judge=QUEEN, succeeds="All", elastic=False, hosts_files=False),
            attach_mode="",
        )
        return tuple(problems) or parsed

    def pod(self, manifest: Custom, spec: JobSpec, place: Place) -> Document:
        return pod_of(self, manifest.spec[place.slot.index]["template"], place, search=True)

    def status(self, job: Job) -> Document:
        return {"phase": job.phase}


def a_template(image: str = "bees") -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": image, "command": ["true"]}]}}


def a_swarm(name: str = "resnet", bees: int = 2) -> dict[str, Any]:
    roles = {"queen": {"template": a_template()}, "bee": {"replicas": bees, "template": a_template()}}
    return _document(SWARMS, name, {"roles": roles})


def a_hive(name: str = "resnet") -> dict[str, Any]:
    return _document(HIVES, name, [{"role": "QUEEN", "template": a_template()}])


def _document(resource: Resource[Custom], name: str, spec: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
