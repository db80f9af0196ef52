"""Two small kinds as a user's package would bring them: one with roles by name, two versions, suspension and a size
that changes, and one whose `spec` is a list.
"""

from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework, PodContext
from shared.frameworks.pods import pod_of
from shared.frameworks.reading import Fields
from shared.frameworks.schemas import (
    AGE,
    BOOLEAN,
    BY_CONDITIONS,
    STATUS_WITH_CONDITIONS,
    TEMPLATE,
    Definition,
    Document,
    Scale,
    Version,
    by_phase,
    choice,
    fixed,
    name_rule,
    number,
)
from shared.frameworks.statuses import condition
from shared.frameworks.templates import training_container
from shared.job.naming import JOB_UID, RESTART
from shared.job.spec import WORKER, Handling, JobSpec, Problem, RoleSpec
from shared.job.state import Job

GROUP = "choirs.test.muster.dev"
CHOIRS = Resource(GROUP, "v1", "choirs", "Choir", Custom)
BANDS = Resource("bands.test.muster.dev", "v1", "bands", "Band", Custom)
LEAD, SINGER = "lead", WORKER

_LEAD: Document = {"type": "object", "required": ["template"], "properties": {"template": TEMPLATE}}
_SINGERS: Document = {
    "type": "object",
    "required": ["template"],
    "properties": {"replicas": number(1, 100, "How many; 1 when absent."), "template": TEMPLATE},
}
_SPEC: Document = {
    "type": "object",
    "required": ["roles"],
    "properties": {
        "roles": {
            "type": "object",
            "required": ["lead"],
            "properties": {"lead": _LEAD, "singer": _SINGERS},
        },
        "runPolicy": {"type": "object", "properties": {"suspend": BOOLEAN}},
    },
}
_KEPT = "the template of a running choir cannot be changed; suspend it first"


class Choir(Framework):
    """One who leads, whose end is the job's, and singers that come and go."""

    resource = CHOIRS

    @property
    def definition(self) -> Definition:
        return Definition(
            "One who leads, and the singers.",
            _SPEC,
            short_names=("ch",),
            columns=({"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}, AGE),
            rules=(
                name_rule("[a-z]([-a-z0-9]*[a-z0-9])?", 40, "name the choir with at most 40 characters"),
                fixed("spec.roles.lead.template", _KEPT, within="spec.roles.lead.template", free=BY_CONDITIONS),
                fixed("spec.roles.singer.template", _KEPT, within="spec.roles", free=BY_CONDITIONS),
            ),
            status=STATUS_WITH_CONDITIONS,
            scale=Scale(".spec.roles.singer.replicas"),
            suspend=".spec.runPolicy.suspend",
            versions=(Version("v1beta1"), Version("v1alpha1", spec={"type": "object", "properties": {}} | _SPEC)),
        )

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        problems: list[Problem] = []
        spec = Fields(manifest.spec, "spec", problems)
        roles = spec.part("roles")
        lead, singer = roles.part("lead"), roles.part("singer")
        training_container(lead)
        if roles.has("singer"):
            training_container(singer)
        singers = singer.integer("replicas", least=1, most=100) or 1
        parsed = JobSpec(
            framework="choir",
            roles=(
                RoleSpec(name=LEAD, replicas=1, container="main"),
                RoleSpec(
                    name=SINGER,
                    replicas=singers if roles.has("singer") else 0,
                    max_replicas=6,
                    container="main",
                ),
            ),
            handling=Handling(leader=LEAD, hosts_files=False),
            attach_mode="",
            suspend=spec.part("runPolicy").boolean("suspend"),
            restart=(manifest.metadata.annotations or {}).get(RESTART, ""),
        )
        return tuple(problems) or parsed

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        role = "lead" if context.slot.role == LEAD else "singer"
        return pod_of(self, manifest.spec["roles"][role]["template"], context, search=True)

    def status(self, job: Job) -> Document:
        return {
            "conditions": [condition(known) for known in job.status.conditions],
            "replicas": len(job.attempt.workers),
            "selector": f"{JOB_UID}={job.key.uid}",
        }


class Band(Framework):
    """A list of roles, neither suspended nor scaled."""

    resource = BANDS

    @property
    def definition(self) -> Definition:
        role: Document = {
            "type": "object",
            "required": ["template"],
            "properties": {"replicas": number(1, 100), "role": choice("LEAD", "SINGER"), "template": TEMPLATE},
        }
        return Definition(
            "A list of roles.",
            {"type": "array", "maxItems": 8, "items": role},
            columns=(AGE,),
            rules=(fixed("spec", "a band cannot be changed", within="spec", free=by_phase("")),),
            status={"type": "object", "properties": {"phase": {"type": "string"}}},
        )

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        problems: list[Problem] = []
        roles = Fields({"spec": manifest.spec}, "", problems).parts("spec")
        for role in roles:
            training_container(role)
        parsed = JobSpec(
            framework="band",
            roles=(RoleSpec(name=LEAD, replicas=len(roles), container="main"),),
            handling=Handling(leader=LEAD, succeeds="All", elastic=False, hosts_files=False),
            attach_mode="",
        )
        return tuple(problems) or parsed

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        return pod_of(self, manifest.spec[context.slot.index]["template"], context, search=True)

    def status(self, job: Job) -> Document:
        return {"phase": job.status.phase}


def a_template(image: str = "singers") -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": image, "command": ["true"]}]}}


def a_choir(name: str = "resnet", singers: int = 2) -> dict[str, Any]:
    roles = {"lead": {"template": a_template()}, "singer": {"replicas": singers, "template": a_template()}}
    return _document(CHOIRS, name, {"roles": roles})


def a_band(name: str = "resnet") -> dict[str, Any]:
    return _document(BANDS, name, [{"role": "LEAD", "template": a_template()}])


def _document(resource: Resource[Custom], name: str, spec: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
