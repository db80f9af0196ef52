"""What each service account may write, as a ValidatingAdmissionPolicy: the API server refuses its other writes.

RBAC says which kinds of object an account may write; these rules say which objects.  An account that serves several
services may do what one of them may.  The accounts of an installation share one policy, as each policy costs every
write in the cluster (`docs/adr/0020`).  Pure; `muster/policies.py` makes the manifests.

A rule sees one request alone: no job, and of a command in a pod only the pod's name.  `docs/tenants.md` says what
follows.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shared.cluster import Resource, scope
from shared.cluster.kinds import AUTOSCALERS, CONFIGMAPS, EVENTS, PODS, SECRETS, SERVICES
from shared.frameworks.framework import Framework
from shared.frameworks.queueing import WORKLOADS
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.installation.permissions import PODGROUPS, REQUESTS, Jobs, Powers
from shared.job.events.event import Author
from shared.job.naming import ATTEMPT, HOSTS_LINKING, HOSTS_VERSION, JOB_UID
from shared.job.spec import LAUNCHER

Document = dict[str, Any]

JOBS = "jobs"
"""Stands for every kind of job, as no resource without a group is called."""

NOTES = (HOSTS_VERSION, HOSTS_LINKING)
"""The annotations of a launcher that the scaler writes."""


class Rule(NamedTuple):
    """One call that a service may make, if the condition holds."""

    service: Author
    operation: str
    resources: tuple[Resource[Any] | Jobs, ...]
    condition: str = ""
    """In CEL; empty where every object of the kind may be written."""
    words: str = ""
    """What the condition asks, for the refusal."""
    subresource: str = ""

    @property
    def calls(self) -> list[str]:
        """As the variable `call` has them."""
        tail = f"/{self.subresource}" if self.subresource else ""
        return [f"{self.operation} {JOBS if isinstance(at, Jobs) else _plural(at)}{tail}" for at in self.resources]


def _plural(resource: Resource[Any]) -> str:
    return f"{resource.group}/{resource.plural}" if resource.group else resource.plural


def _same(*fields: str, of: str = "") -> str:
    """The fields, of the object or of its part `of`, are what they were."""
    part = f".{of}" if of else ""
    return f"{json.dumps([*fields])}.all(f, object{part}[?f] == oldObject{part}[?f])"


def _kind_of(reference: str) -> str:
    """`group/Kind` of an object that refers to another one."""
    return f"{reference}.?apiVersion.orValue('').split('/')[0] + '/' + {reference}.?kind.orValue('')"


OURS = "variables.ours"
OURS_IN_WORDS = f"its controller is no job whose uid is its label {JOB_UID}"

_QUEUED = f"variables.kueue && {OURS} && variables.owner == '{TRAININGJOBS.group}/{TRAININGJOBS.kind}'"
_QUEUED_IN_WORDS = f"{OURS_IN_WORDS}, or that is no TrainingJob, or no job waits in queues"
_OF_A_CLASS = "(object.spec.?priority.orValue(0) == 0 || object.spec.?priorityClassRef.hasValue())"
_ADMITS_NOTHING = "(!object.?status.?admission.hasValue() || object.?status.?admission == oldObject.?status.?admission)"
_SLOT = f"(['{ATTEMPT}'] + variables.kinds[variables.owner]).all(l, l in object.metadata.labels)"
_HEADLESS = "object.spec.?clusterIP.orValue('') == 'None' && object.spec.?externalIPs.orValue([]).size() == 0"
_UNTYPED = "object.?type.orValue('Opaque') == 'Opaque'"
_EXPIRES = "[oldObject.spec, oldObject.spec.?runPolicy.orValue({})].exists(s, s.?ttlSecondsAfterFinished.hasValue())"
_SAME_OWNERS = _same("ownerReferences", of="metadata")
_NOTES_ONLY = (
    f"[object, oldObject].all(one, one.metadata.?annotations.orValue({{}}).all(a, a in {json.dumps([*NOTES])}"
    " || object.metadata.?annotations[?a] == oldObject.metadata.?annotations[?a]))"
)
_OLD, _NEW = (f"{one}.metadata.?ownerReferences.orValue([])" for one in ("oldObject", "object"))
_ONLY_OWNED = (
    f"{_OLD}.all(r, r in {_NEW}) && {_NEW}.all(r, r in {_OLD} || ({_kind_of('r')}) in variables.kinds)"
    f" && {_same('labels', 'annotations', 'finalizers', of='metadata')} && {_same('spec')}"
)
_ABOUT_OURS = (
    f"({_kind_of('object.involvedObject')}) in variables.kinds"
    f" || ({_kind_of('object.involvedObject')}) in {json.dumps([f'{kind.group}/{kind.kind}' for kind in REQUESTS])}"
)

_ACCOUNT = (
    "variables.labels.size() == 0 || [object.spec.?serviceAccountName.orValue('default')].all(a, a in ['', 'default']"
    f" || namespaceObject.metadata.?annotations[?'{scope.ACCOUNTS}'].orValue('').split(',')"
    ".exists(n, n == a || n == '*'))"
)

RULES = (
    Rule(
        "scheduler",
        "CREATE",
        (PODS,),
        f"{OURS} && {_SLOT} && ({_ACCOUNT})",
        f"{OURS_IN_WORDS}, or it lacks the labels of a slot, or its service account is neither default nor in the "
        f"annotation {scope.ACCOUNTS} of the namespace",
    ),
    Rule("scheduler", "CREATE", (SERVICES,), f"{OURS} && {_HEADLESS}", f"{OURS_IN_WORDS}, or it is not headless"),
    Rule(
        "scheduler",
        "CREATE",
        (SECRETS,),
        f"variables.ssh && {OURS} && {_UNTYPED}",
        f"{OURS_IN_WORDS}, or it is not Opaque, or ssh is off",
    ),
    Rule(
        "scheduler",
        "UPDATE",
        (PODS, SERVICES),
        f"variables.take_over && {OURS} && {_same('annotations', 'finalizers', 'ownerReferences', of='metadata')}"
        f" && {_same('spec')}",
        "only labels change, of a job's objects, and only while jobs are taken over",
    ),
    Rule("scheduler", "CREATE", (PODGROUPS, AUTOSCALERS), OURS, OURS_IN_WORDS),
    Rule("scheduler", "DELETE", (PODS, SERVICES, PODGROUPS, AUTOSCALERS), OURS, OURS_IN_WORDS),
    Rule("scheduler", "DELETE", (SECRETS,), f"variables.ssh && {OURS}", f"{OURS_IN_WORDS}, or ssh is off"),
    Rule(
        "scheduler",
        "CREATE",
        (WORKLOADS,),
        f"{_QUEUED} && {_OF_A_CLASS}",
        f"{_QUEUED_IN_WORDS}, or its priority is of no class",
    ),
    Rule(
        "scheduler",
        "UPDATE",
        (WORKLOADS,),
        f"{_QUEUED} && {_SAME_OWNERS} && {_OF_A_CLASS}",
        f"{_QUEUED_IN_WORDS}, or its owners change, or its priority is of no class",
    ),
    Rule(
        "scheduler",
        "UPDATE",
        (WORKLOADS,),
        f"{_QUEUED} && {_ADMITS_NOTHING}",
        f"{_QUEUED_IN_WORDS}, or it would be admitted",
        "status",
    ),
    Rule("scheduler", "DELETE", (WORKLOADS,), _QUEUED, _QUEUED_IN_WORDS),
    Rule("scheduler", "DELETE", (Jobs.EVERY,), _EXPIRES, "it has no time to live after its end"),
    Rule("scheduler", "CREATE", (CONFIGMAPS,), OURS, OURS_IN_WORDS),
    Rule("scaler", "CREATE", (CONFIGMAPS,), OURS, OURS_IN_WORDS),
    Rule("scaler", "UPDATE", (CONFIGMAPS,), f"{OURS} && {_SAME_OWNERS}", f"{OURS_IN_WORDS}, or its owners change"),
    Rule("scaler", "DELETE", (CONFIGMAPS,), OURS, OURS_IN_WORDS),
    Rule(
        "scaler",
        "UPDATE",
        (PODS,),
        f"{OURS} && {_NOTES_ONLY} && {_same('labels', 'finalizers', 'ownerReferences', of='metadata')}"
        f" && {_same('spec')}",
        f"only the annotations {' and '.join(NOTES)} of a job's pods change",
    ),
    Rule(
        "scaler",
        "CONNECT",
        (PODS,),
        f"variables.exec && request.name.endsWith('-{LAUNCHER}')",
        "commands run in launchers only, and nowhere where exec is off",
        "exec",
    ),
    Rule("scaler", "UPDATE", (SCALEINS, SCALEOUTS), _ONLY_OWNED, "only a job of ours is added to its owners"),
    Rule("scaler", "UPDATE", (Jobs.WITH_REQUESTS,), subresource="scale"),
    Rule("status", "UPDATE", (Jobs.EVERY, SCALEINS, SCALEOUTS), subresource="status"),
    Rule("status", "CREATE", (EVENTS,), _ABOUT_OURS, "it is not about a job or a scale request"),
)
"""The watcher has none: it writes nothing."""


def labels_of_pods(kinds: Iterable[Framework]) -> dict[str, list[str]]:
    """By `group/Kind` of job: the labels of its pods' slots, besides that of the attempt."""
    return {f"{kind.resource.group}/{kind.resource.kind}": [kind.role_label, kind.index_label] for kind in kinds}


def plurals(kinds: Iterable[Framework]) -> list[str]:
    """`group/plural` of each kind of job."""
    return [_plural(kind.resource) for kind in kinds]


def closed_namespaces(home: str, scope: str) -> list[str]:
    """The namespaces, besides those of the system, in which no service writes; one for its own alone keeps that."""
    return [home] if home != scope else []


def settings(kinds: Iterable[Framework], closed: Collection[str], powers: Powers) -> list[Document]:
    """The variables that differ between installations; the others read them."""
    kinds = [*kinds]
    given = {
        "closed": [*closed],
        "labels": [*powers.namespaces],
        "kinds": labels_of_pods(kinds),
        "jobs": plurals(kinds),
        "take_over": powers.taking_over,
        "exec": powers.commands,
        "ssh": powers.keys,
        "kueue": powers.kueue,
    }
    return [_variable(name, _json(value)) for name, value in given.items()]


def _json(value: Any) -> str:
    """As Helm's `toJson` writes it; CEL reads it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _variable(name: str, expression: str) -> Document:
    return {"name": name, "expression": expression}


VARIABLES = (
    _variable("it", "request.operation == 'DELETE' ? oldObject : object"),
    _variable(
        "plural", "(request.resource.group == '' ? '' : request.resource.group + '/') + request.resource.resource"
    ),
    _variable(
        "call",
        f"request.operation + ' ' + (variables.plural in variables.jobs ? '{JOBS}' : variables.plural)"
        " + (has(request.subResource) && request.subResource != '' ? '/' + request.subResource : '')",
    ),
    _variable("within", "has(request.namespace) ? request.namespace : ''"),
    _variable("where", "variables.within + '/' + (has(request.name) ? request.name : '')"),
    _variable(
        "controllers", "variables.it.metadata.?ownerReferences.orValue([]).filter(r, r.?controller.orValue(false))"
    ),
    _variable(
        "owner",
        f"variables.controllers.size() == 1 ? {_kind_of('variables.controllers[0]')} : ''",
    ),
    _variable(
        "lacking",
        # A namespace that is made is not there yet.
        "variables.within == '' || variables.plural == 'namespaces' ? [] : variables.labels.filter(l,"
        " !namespaceObject.?metadata.?labels.orValue({})"
        ".exists(k, l == k || l == k + '=' + namespaceObject.metadata.labels[k]))",
    ),
    # What runs in a namespace whose label goes ends as it would: its status is told and its objects are deleted.
    _variable(
        "begins",
        f"request.operation == 'CREATE' && variables.call != 'CREATE {_plural(EVENTS)}'"
        f" || request.operation == 'CONNECT' || variables.call == 'DELETE {JOBS}'",
    ),
    _variable("job_uid", f"variables.it.metadata.?labels[?'{JOB_UID}'].orValue('')"),
    # What another operator made has no label of ours until it is taken over.
    _variable(
        "ours",
        "variables.owner in variables.kinds && (variables.job_uid == variables.controllers[0].uid"
        " || (variables.take_over && variables.job_uid == ''))",
    ),
)

_ALL = ["CREATE", "UPDATE", "DELETE", "CONNECT"]

_UNJUDGED = (
    # Who asks what it may do writes nothing.
    (["authentication.k8s.io", "authorization.k8s.io"], ["CREATE"], ["*/*"]),
    # What a cluster writes all the time, and no service does, but for the anchor, which is a Lease.
    (["", "apps"], _ALL, ["*/status"]),
    ([""], _ALL, ["pods/binding", "endpoints"]),
    (["discovery.k8s.io"], _ALL, ["endpointslices"]),
    (["coordination.k8s.io"], _ALL, ["leases"]),
)
"""Groups, operations and resources."""


def rule(groups: list[str], operations: list[str], resources: list[str]) -> Document:
    """A rule of a policy about these operations on these resources, in every version."""
    return {
        "apiGroups": groups,
        "apiVersions": ["*"],
        "operations": operations,
        "resources": resources,
        "scope": "*",
    }


def matching(rules: Iterable[Document]) -> Document:
    """The constraints of a policy; the API server's defaults stand here, so that a policy reads as it was written."""
    return {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [*rules]}


MATCH: Document = matching([rule(["*"], _ALL, ["*/*"])]) | {
    "excludeResourceRules": [rule(*unjudged) for unjudged in _UNJUDGED],
}
"""The writes that are judged."""


def component(services: Sequence[Author]) -> str:
    """What an account that serves these services is called in a policy, as the chart calls it."""
    return services[0] if len(services) == 1 else "all"


def refusal(services: Sequence[Author]) -> str:
    """In CEL: why an account that serves these services may not make this write; empty where it may."""
    rules: dict[str, list[Rule]] = {}
    for rule in RULES:
        for call in rule.calls if rule.service in services else ():
            rules.setdefault(call, []).append(rule)
    asked: dict[str, list[str]] = {}
    for call, alternatives in rules.items():
        conditions = dict.fromkeys(rule.condition for rule in alternatives)
        words = "; ".join(dict.fromkeys(rule.words for rule in alternatives))
        held = " || ".join(f"({one})" for one in conditions)
        asked.setdefault(f"({held} ? '' : {_quoted(words)})" if all(conditions) else "''", []).append(call)
    judged = "".join(f"variables.call in {json.dumps(calls)} ? {told} : " for told, calls in asked.items())
    return judged + _quoted(f"the {_among(services)} makes no such call")


def _among(services: Sequence[Author]) -> str:
    return "status service" if [*services] == ["status"] else "/".join(services)


def _quoted(words: str) -> str:
    escaped = words.replace("'", "\\'")
    return f"'{escaped}'"


CLOSED = (
    f"variables.within in variables.closed || variables.within.startsWith('{scope.SYSTEM}')"
    " ? 'the namespace is closed to Muster' : variables.begins && variables.lacking.size() > 0"
    " ? 'the namespace lacks the label ' + variables.lacking[0] : "
)
STRANGER = "'it has no rules'"


def refusals(by_component: Mapping[str, str]) -> list[Document]:
    """The variables that say why a write is refused: one for each component, of which one is evaluated."""
    chosen = "".join(f"variables.component == '{one}' ? variables.refusal_{one} : " for one in by_component)
    return [
        *(_variable(f"refusal_{one}", expression) for one, expression in by_component.items()),
        _variable("refusal", f"{CLOSED}{chosen}{STRANGER}"),
    ]


VALIDATIONS: list[Document] = [
    {
        "expression": "variables.refusal == ''",
        "messageExpression": "'Muster may not ' + variables.call + ' ' + variables.where + ': ' + variables.refusal",
        "reason": "Forbidden",
    }
]
"""One, as the API server evaluates each, and the message of each, for every write."""


def user(namespace: str, account: str) -> str:
    """The name of a service account at the API server."""
    return f"system:serviceaccount:{namespace}:{account}"


def spec(namespace: str, accounts: Mapping[str, Sequence[Author]], given: Iterable[Document]) -> Document:
    """The policy of these accounts, each with its services; `given` are its `settings`."""
    users = {user(namespace, account): component(services) for account, services in accounts.items()}
    return {
        "failurePolicy": "Fail",
        "matchConstraints": MATCH,
        "matchConditions": [{"name": "account", "expression": f"request.userInfo.username in {_json(users)}"}],
        "variables": [
            _variable("component", f"{_json(users)}[request.userInfo.username]"),
            *given,
            *VARIABLES,
            *refusals({component(services): refusal(services) for services in accounts.values()}),
        ],
        "validations": VALIDATIONS,
    }
