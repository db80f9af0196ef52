"""Rights that recorded calls needed, against rights that roles grant.  Pure.

A recording is an API server's audit log of level Metadata.  What a call needs is its own right, and what admission
asks about besides: that asks the authorizer without a line in the log.
"""

import json
from collections.abc import Container, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from muster.permissions import HOME, SERVICE_ACCOUNTS, role
from shared.cluster.answers import UNKNOWN_OWNER
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOB
from shared.installation.permissions import Need
from shared.job.events.event import Author

EVERYBODYS = ("system:basic-user", "system:discovery", "system:public-info-viewer")
"""Roles that Kubernetes binds to everybody who is known: asking what one may do, and what is served."""

NO_ROLES_FAULT = ("is being terminated", "exceeded quota", UNKNOWN_OWNER)
"""What a 403 says that no role would change."""

CHILDREN = tuple((kind.group, kind.plural) for kind in (PODS, SERVICES, CONFIGMAPS, SECRETS))
REQUESTS = tuple((kind.group, kind.plural) for kind in (SCALEINS, SCALEOUTS))


class Call(NamedTuple):
    """One call of a service to the API server, as it was answered."""

    need: Need
    namespace: str
    """Empty for a call about the whole cluster."""
    role: str
    """Whose rule allowed it."""
    refused: str
    """Why it was forbidden; empty when it was not."""
    by_admission: bool = False
    """Forbidden by an admission plugin, whatever the roles say of the call itself."""

    def refusable(self, granted: Container[Need]) -> bool:
        """Whether the refusal is the roles' fault: a server that has just started forbids even what they allow."""
        return self.by_admission or self.need not in granted


class Comparison(msgspec.Struct, frozen=True):
    """Everything empty: the roles are what was needed, no more and no less."""

    refused: tuple[str, ...]
    elsewhere: tuple[str, ...]
    """Calls that another role than the service's own allowed."""
    missing: frozenset[Need]
    in_vain: frozenset[Need]


def used(calls: Iterable[Call], kinds: Iterable[Framework] = BUILT_IN) -> list[Framework]:
    """The kinds of job of which jobs had pods: their templates are read for nothing else."""
    needs = {call.need for call in calls}
    return [kind for kind in kinds if Need("scheduler", "get", kind.resource.group, kind.resource.plural) in needs]


def compare(calls: Iterable[Call], granted: Iterable[Need], kinds: Iterable[Framework] = BUILT_IN) -> Comparison:
    """What differs between the rights that `calls` needed and those that are `granted`.

    Whose child something became stands in no recording: of all `kinds` that were used, it is believed.
    """
    made = list(calls)
    owners = used(made, kinds)
    needed = {need for call in made for need in (call.need, *_asked_by_admission(call.need, owners))}
    given = set(granted)
    return Comparison(
        refused=tuple(
            sorted({f"{call.need}: {call.refused}" for call in made if call.refused and call.refusable(given)})
        ),
        elsewhere=tuple(
            sorted(
                {
                    f"{call.need} by {call.role}"
                    for call in made
                    if not call.refused and call.role != role(call.need.service)
                }
            )
        ),
        missing=frozenset(needed - given),
        in_vain=frozenset(given - needed),
    )


def calls(recording: Iterable[str], namespace: str = HOME) -> Iterator[Call]:
    """The calls of our services, whose accounts are in `namespace`, to objects of the API server."""
    accounts = {f"system:serviceaccount:{namespace}:{service}": service for service in SERVICE_ACCOUNTS}
    for line in recording:
        try:
            entry = json.loads(line)
        except ValueError:
            # A server that was killed leaves half a line.
            continue
        service, at = accounts.get(entry["user"]["username"]), entry.get("objectRef", {})
        role = _role(entry)
        if service is None or _was_turned_away(entry) or role in EVERYBODYS or _is_everybodys(entry):
            continue
        resource = "/".join(filter(None, (at.get("resource", entry["requestURI"]), at.get("subresource"))))
        need = Need(service, entry["verb"], at.get("apiGroup", ""), resource)
        yield Call(need, at.get("namespace", ""), role, _refusal(entry), by_admission=bool(role))


def granted(manifests: Iterable[dict[str, Any]]) -> list[Need]:
    """What roles named after the services grant, one by one; a wildcard stands for itself."""
    return [
        Need(role["metadata"]["name"].removeprefix("muster:"), verb, group, resource)
        for role in manifests
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def of_kinds(needs: Iterable[Need], kinds: Iterable[Framework]) -> set[Need]:
    """Those of `needs` that are about jobs of these kinds."""
    places = {(kind.resource.group, kind.resource.plural) for kind in kinds}
    return {need for need in needs if (need.group, need.resource.partition("/")[0]) in places}


def _asked_by_admission(need: Need, owners: Iterable[Framework]) -> Iterator[Need]:
    """`OwnerReferencesPermissionEnforcement`: who sets an owner could delete the object, and hold up the owner.

    And who upgrades a GET to a stream of commands could have begun it with a POST, as newer versions insist.
    """
    if need.resource == "pods/exec":
        yield need._replace(verb="create")
    place = (need.group, need.resource)
    if need.verb == "create" and place in CHILDREN:
        # The scaler's only child is the ConfigMap with the hosts files.
        yield from (
            _finalizers(need.service, owner) for owner in owners if need.service != "scaler" or owner.has_hosts_files
        )
    if need.verb == "patch" and place in REQUESTS:
        yield _finalizers(need.service, TRAININGJOB)
        yield need._replace(verb="delete")


def _finalizers(service: Author, owner: Framework) -> Need:
    return Need(service, "update", owner.resource.group, f"{owner.resource.plural}/finalizers")


def _was_turned_away(entry: dict[str, Any]) -> bool:
    """A busy server answers 429 before it asks the authorizer who may make the call."""
    judged = "authorization.k8s.io/decision" in entry.get("annotations", {})
    return not judged and entry.get("responseStatus", {}).get("code") == 429


def _role(entry: dict[str, Any]) -> str:
    """The role that the authorizer names: `RBAC: allowed by ClusterRoleBinding "x" of ClusterRole "y" to ...`."""
    _, _, rest = entry.get("annotations", {}).get("authorization.k8s.io/reason", "").partition("Role ")
    return rest.split('"')[1] if rest else ""


def _is_everybodys(entry: dict[str, Any]) -> bool:
    """What everybody may ask, also of a server that does not know that yet."""
    at = entry.get("objectRef")
    return at is None or at.get("resource") == "selfsubjectaccessreviews"


def _refusal(entry: dict[str, Any]) -> str:
    answer = entry.get("responseStatus", {})
    forbidden = entry.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
    said = answer.get("message", "forbidden")
    if forbidden or (answer.get("code") == 403 and not any(known in said for known in NO_ROLES_FAULT)):
        return f"{answer.get('code')} {said}"
    return ""
