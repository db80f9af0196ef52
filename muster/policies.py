"""The admission policies, made from `shared.installation.admission`, and an optional one for who asks for jobs.  Pure.

With what an API server needs for the audit service: another policy, and that of its audit log.

Muster makes a job's pods and runs a request's script with its own rights.  With the optional policy the person, or the
service account, who asks for that needs the same rights, by the authorizer.  So does who writes a runtime, as that
becomes pods.  The policy does not see which account the runtime names that a job refers to.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.installation import admission
from shared.installation.permissions import REQUESTS, SERVICES_OF_A_CLUSTER, USUAL, Powers
from shared.job.events.event import Author
from shared.job.naming import AUDIT_POLICY, WRITE_CHANGED, WRITE_UNCHANGED

GROUP = "admissionregistration.k8s.io"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
POLICIES = Resource(GROUP, "v1", "validatingadmissionpolicies", POLICY, Custom)
BINDINGS = Resource(GROUP, "v1", "validatingadmissionpolicybindings", BINDING, Custom)
"""Cluster-scoped."""

Document = dict[str, Any]


def accounts(stem: str = "") -> dict[str, Sequence[Author]]:
    """An account for each service, called after it, with the services that have it."""
    return {f"{stem}{service}": (service,) for service in SERVICES_OF_A_CLUSTER}


def together(account: str, services: Sequence[Author]) -> dict[str, Sequence[Author]]:
    """The accounts that share the policy of one of them, each with its services: those of an installation."""
    return {account: services} if len(services) > 1 else accounts(account.removesuffix(services[0]))


def name(accounts: Mapping[str, Sequence[Author]], home: str) -> str:
    """The name of the policy of an installation's accounts and of its binding: policies have no namespace."""
    account, services = next(iter(accounts.items()))
    stem = account if len(services) > 1 else account.removesuffix(services[0]).removesuffix("-")
    return f"{stem or 'services'}.{home}.muster.dev"


def bound(name: str, spec: Document, action: str = "Deny") -> list[Document]:
    """A policy and the binding that puts it in force everywhere."""
    metadata = {"name": name}
    binding = {"policyName": name, "validationActions": [action]}
    return [
        {"apiVersion": f"{GROUP}/v1", "kind": POLICY, "metadata": dict(metadata), "spec": spec},
        {"apiVersion": f"{GROUP}/v1", "kind": BINDING, "metadata": dict(metadata), "spec": binding},
    ]


def manifests(
    accounts: Mapping[str, Sequence[Author]],
    home: str,
    *,
    scope: str = "",
    kinds: Iterable[Framework] = BUILT_IN,
    powers: Powers = USUAL,
) -> list[Document]:
    """The policy of an installation's accounts in the namespace `home`, each with its services, and its binding."""
    closed = admission.closed_namespaces(home, scope)
    # An installation for one namespace was given it by name.
    given = admission.settings(kinds, closed, powers._replace(namespaces=()) if scope else powers)
    return bound(name(accounts, home), admission.spec(home, accounts, given))


def of_requesters(home: str, kinds: Iterable[Framework] = BUILT_IN) -> list[Document]:
    """The policy for whoever creates jobs and scale requests; `home` tells installations apart."""
    return bound(f"{REQUESTERS}.{home}.muster.dev", spec_of_requesters(kinds))


def of_audit(home: str, kinds: Iterable[Framework] = BUILT_IN) -> list[Document]:
    """The policy that notes in audit events whether a request changed its object; it refuses nothing."""
    return bound(f"{AUDIT_POLICY}.{home}.muster.dev", spec_of_audit(kinds), "Audit")


REQUESTERS = "requesters"

_IN_NAMESPACE = "namespace(variables.home)"
_PARTS = (
    "[(type(variables.spec) == list ? variables.spec : [variables.spec])] + (type(variables.spec) != map ? []"
    " : variables.spec.map(f, type(variables.spec[f]) == map ? variables.spec[f].map(k, variables.spec[f][k])"
    " : type(variables.spec[f]) == list ? variables.spec[f] : []))"
)
"""Lists of what may have a pod template: the spec, or its elements where it is a list, and those of its fields."""
_JOB_SETS = (
    "type(variables.spec) != map ? [] : [variables.spec]"
    " + variables.spec.?runtimePatches.orValue([]).map(p, p.?trainingRuntimeSpec.orValue({}))"
)
"""What has a template with replicated jobs: a runtime, and the changes that a job makes to one."""
_ACCOUNTS = "[{0}.?template.?spec.?serviceAccountName.orValue(''), {0}.?template.?spec.?serviceAccount.orValue('')]"
_MAY_USE = (
    "{0}.all(n, n in ['', 'default']"
    f" || authorizer.group('').resource('serviceaccounts').{_IN_NAMESPACE}.name(n).check('impersonate').allowed())"
)
"""Kubernetes has no verb for running a pod under an account; who may impersonate it may do all that the pod may."""


def spec_of_requesters(kinds: Iterable[Framework]) -> Document:
    """The policy for jobs of these kinds and for scale requests."""
    kinds = [*kinds]
    runtimes = [each.resource for kind in kinds for each in kind.runtimes]
    judged = dict.fromkeys([*(kind.resource for kind in kinds), *runtimes, *REQUESTS])
    return {
        "failurePolicy": "Fail",
        "matchConstraints": admission.matching(
            admission.rule([each.group], ["CREATE", "UPDATE"], [each.plural]) for each in judged
        ),
        # An edit of metadata or of a status is not judged.
        "matchConditions": [
            {"name": "asked", "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec"}
        ],
        "variables": VARIABLES,
        "validations": VALIDATIONS,
    }


VARIABLES = [
    {"name": "spec", "expression": "dyn(object.?spec.orValue({}))"},
    # Of a runtime of the cluster it is empty, and the rights are those in every namespace.
    {"name": "home", "expression": "request.?namespace.orValue('')"},
    {"name": "where", "expression": "variables.home == '' ? 'every namespace' : variables.home"},
    {
        "name": "request",
        "expression": f"request.resource.resource in {[request.plural for request in REQUESTS]!r}",
    },
    {"name": "parts", "expression": _PARTS},
    {"name": "job_sets", "expression": _JOB_SETS},
]

VALIDATIONS = [
    {
        "expression": "variables.request"
        f" || authorizer.group('').resource('pods').{_IN_NAMESPACE}.check('create').allowed()",
        "messageExpression": "'a job is pods: ask for the right to create pods in ' + variables.where",
        "reason": "Forbidden",
    },
    {
        "expression": "!variables.request || variables.spec.?script.orValue('') == ''"
        f" || authorizer.group('').resource('pods').subresource('exec').{_IN_NAMESPACE}.check('create').allowed()",
        "messageExpression": "'a script is a command in a pod: ask for the right to create pods/exec in '"
        " + variables.where + ', or leave the script out'",
        "reason": "Forbidden",
    },
    {
        "expression": "variables.request || (variables.parts.all(l, l.all(r, type(r) != map || "
        + _MAY_USE.format(_ACCOUNTS.format("r"))
        + ")) && variables.job_sets.all(s, s.?template.?spec.?replicatedJobs.orValue([]).all(j, "
        + _MAY_USE.format(_ACCOUNTS.format("j.?template.?spec"))
        + ")))",
        "messageExpression": "'a template names a service account: ask for the right to impersonate it in '"
        " + variables.where + ', or leave serviceAccountName out'",
        "reason": "Forbidden",
    },
]


_SAME = "object.spec == oldObject.spec" + "".join(
    f" && object.metadata.?{field} == oldObject.metadata.?{field}" for field in ("labels", "annotations")
)


def spec_of_audit(kinds: Iterable[Framework]) -> Document:
    """The admission policy for jobs of these kinds and for scale requests.

    An audit event says who asked, and the answer says which version the object has now.  It does not say whether the
    request made that version: an edit without a change is answered with the version of the last write.  So this policy,
    which refuses nothing, notes in the audit event whether the request changed the object.  An API server asks it again
    at each try of a request, and of two notes with the same key it keeps the first; so there are two keys, and a write
    is certain with the one and without the other.
    """
    return {
        # A request without a note stays without an author; none is refused.
        "failurePolicy": "Ignore",
        "matchConstraints": admission.matching(
            admission.rule([group], ["CREATE", "UPDATE", "DELETE"], resources)
            for group, resources in _resources(kinds).items()
        ),
        "variables": [
            {
                "name": "changed",
                "expression": "!(has(request.dryRun) && request.dryRun) && (request.operation == 'CREATE'"
                " || (request.operation == 'DELETE' ? !has(oldObject.metadata.deletionTimestamp)"
                f" : !({_SAME})))",
            }
        ],
        "auditAnnotations": [
            {"key": WRITE_CHANGED, "valueExpression": "variables.changed ? 'yes' : ''"},
            {"key": WRITE_UNCHANGED, "valueExpression": "variables.changed ? '' : 'yes'"},
        ],
    }


def log_policy(kinds: Iterable[Framework]) -> Document:
    """The API server's own audit policy (`--audit-policy-file`): writes of jobs and requests, with their answers.

    A lower level than RequestResponse has no version of the object.
    """
    resources = [{"group": group, "resources": found} for group, found in _resources(kinds).items()]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {
                "level": "RequestResponse",
                "verbs": ["create", "update", "patch", "delete"],
                "resources": resources,
                "omitManagedFields": True,
            },
            {"level": "None"},
        ],
    }


def _resources(kinds: Iterable[Framework]) -> dict[str, list[str]]:
    """The plurals by group, those of subresources by which a job is changed included."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        found.setdefault(kind.resource.group, []).extend([kind.resource.plural, f"{kind.resource.plural}/scale"])
    for request in REQUESTS:
        found.setdefault(request.group, []).append(request.plural)
    return found
