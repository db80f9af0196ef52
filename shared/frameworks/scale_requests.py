"""ScaleIn and ScaleOut (`kai.alibabacloud.com/v1alpha1`): their definitions, how they are parsed, their status.  Pure.

Older definitions let anything through, so any JSON gives a spec or all its problems.

A script is a file that the launcher has.  A request names it and gives it values; it must not bring code along, because
who may create requests need not be the one who may run commands in the launcher.  So a script is no file that shows
the request's own words, such as `/proc/self/environ`, and no variable has a value that a program is known to run: such
a list is never complete.  `PATH` and `PYTHONPATH` only choose among the launcher's files, as the script's path does.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks import schemas
from shared.frameworks.model import Field, Written, flag, items, number, part, text
from shared.frameworks.reading import DEFAULT_BACKOFF_LIMIT, LONGEST_POD_NAME, MOST_WORKERS, Fields
from shared.frameworks.schemas import Definition, Document
from shared.frameworks.statuses import condition
from shared.job import reasons
from shared.job.conditions import Condition
from shared.job.naming import NO_UID, worker_index
from shared.job.policies import quota
from shared.job.scaling import Request
from shared.job.spec import OVER_BUDGET, Problem, ScaleKind, ScaleSpec, waits_for_turn
from shared.job.state import Job
from shared.job.text import range_words
from shared.job.views import ranges

VIRTUAL = frozenset({"proc", "dev", "sys"})
"""Folders whose files show what processes were given."""

NAME = re.compile(r"[._a-zA-Z][-._a-zA-Z0-9]*")
"""As of the variables of a pod."""

LINES = re.compile(r"[\n\r]")

INTERPRETED = re.compile(
    r"(LD|BASH|DYLD|GIT|LESS)_.*|ENV|IFS|PS[0-9]|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|GCONV_PATH|GLIBC_TUNABLES"
    r"|PERL5(OPT|DB)|RUBYOPT|NODE_OPTIONS|(JAVA_TOOL|_JAVA|JDK_JAVA)_OPTIONS"
    r"|PYTHON(STARTUP|WARNINGS|BREAKPOINT|INSPECT)|BROWSER|EDITOR|VISUAL|(MAN)?PAGER|LESSOPEN|LESSCLOSE"
    r"|(OMPI|PMIX|PRTE|HYDRA|I_MPI|SLURM)_.*|TAR_OPTIONS|MAKEFLAGS|MFLAGS|RSYNC_.*|SSH_.*|SHELL|R_(PROFILE|ENVIRON).*"
)
"""Variables whose values the loader, a shell or another interpreter runs or takes for options."""


def problem_of_path(script: str) -> str:
    """Why this is no script; empty if it is one.  A relative path is one in the launcher's working folder."""
    steps = [step for step in script.split("/") if step not in ("", ".")]
    if script.startswith("-"):
        return "give the path of a script: the shell would take this for an option"
    if ".." in steps or LINES.search(script):
        return "give the path of a script without `..` and on one line"
    if steps and steps[0] in VIRTUAL:
        return f"give the path of a file in the launcher: /{steps[0]} has none"
    return ""


def problem_of_name(name: str) -> str:
    """Why a script gets no variable of this name; empty if it does."""
    if not NAME.fullmatch(name):
        return "give the variable a name of letters, digits, dots, hyphens and underscores"
    if INTERPRETED.fullmatch(name):
        return f"set {name} in the script or in the launcher: a program runs its value"
    return ""


def problem_of_value(value: str) -> str:
    """Why a script gets no such value; empty if it does."""
    return "leave out null characters and line breaks" if "\0" in value or LINES.search(value) else ""


GROUP = "kai.alibabacloud.com"
VERSION = "v1alpha1"
SCALEINS = Resource(GROUP, VERSION, "scaleins", "ScaleIn", Custom)
SCALEOUTS = Resource(GROUP, VERSION, "scaleouts", "ScaleOut", Custom)
REQUESTS = {known.kind: known for known in (SCALEINS, SCALEOUTS)}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

MOST_NAMED = 1_000
"""The most pod names of a request; a job's own workers are the narrower bound."""
LONGEST_REQUEST_NAME = 63
"""Characters of a request's name, which is also the value of a label."""
LONGEST_SELECTED_NAME = 253
DEFAULT_TIMEOUT_SECONDS = 60


class _Selector(Written):
    """Which job."""

    name = text(
        "The TrainingJob to scale, of the same namespace.",
        required=True,
        minLength=1,
        maxLength=LONGEST_SELECTED_NAME,
    )


class _Variable(Written):
    """Passed to the script as it is."""

    name = text(required=True, minLength=1, pattern="^[^=]+$")
    value = text()


class _Request(Written):
    """What is asked of which job."""

    rules = (schemas.rule("self == oldSelf", "a scale request cannot be changed: create another one"),)
    selector = part(_Selector)
    script = text(
        "A path in the launcher's first container: run once, by sh, with the workers that come or leave as pod:slots."
    )
    timeout = number(
        "Seconds until the scaling has to be done, from when its turn comes, and seconds that the script may take: 60 "
        "when absent.  Waiting for the job, or for other requests, does not count.",
        1,
    )
    env = items(_Variable, "For the script.")
    backoff_limit = number("How many new workers may be replaced before they are Ready: 6 when absent.")


class _ToDelete(Written):
    """How many workers leave, or which."""

    rules = (schemas.rule("has(self.count) != has(self.podNames)", "set either count or podNames, and not both"),)
    count = number("Those with the highest indices.", 1, MOST_WORKERS)
    pod_names = Field(
        {
            "type": "array",
            "description": "These very workers.",
            "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_POD_NAME},
            "minItems": 1,
            "maxItems": MOST_NAMED,
            "x-kubernetes-list-type": "set",
        },
        Fields.texts,
    )


class _ToAdd(Written):
    """How many workers come."""

    count = number("Their indices follow the highest one ever used.", 1, MOST_WORKERS, required=True)
    partial = flag("If true, those for which there is room come, and the others once there is room for them.")


class _ScaleIn(_Request):
    to_delete = part(_ToDelete)


class _ScaleOut(_Request):
    to_add = part(_ToAdd)


def parse_scale(kind: ScaleKind, manifest: Custom) -> ScaleSpec | tuple[Problem, ...]:
    """The spec of a request, or all its problems."""
    problems: list[Problem] = []
    if len(manifest.metadata.name) > LONGEST_REQUEST_NAME:
        message = f"create the request again under a name of at most {LONGEST_REQUEST_NAME} characters"
        problems.append(Problem(reason="InvalidName", field="metadata.name", message=message))
    fields = Fields(manifest.spec, "spec", problems)
    spec: _Request
    partial = False
    if kind == "ScaleIn":
        spec = leaving = _ScaleIn(fields)
        count, pod_names = _checked(leaving)
    else:
        spec = coming = _ScaleOut(fields)
        count, pod_names, partial = coming.to_add.count, [], coming.to_add.partial
        if not coming.to_add.fields.has("count"):
            fields.refuse("NothingToAdd", "say how many workers come (count)", "toAdd")
    job = spec.selector.name
    if not job or len(job) > LONGEST_SELECTED_NAME:
        spec.selector.fields.refuse("NoJobName", "name the TrainingJob to scale, of the same namespace", "name")
    for variable in spec.env:
        if problem := problem_of_name(variable.name):
            variable.fields.refuse("InvalidEnvironment", problem, "name")
        if problem := problem_of_value(variable.value):
            variable.fields.refuse("InvalidEnvironment", problem, "value")
    if problem := problem_of_path(spec.script):
        fields.refuse("InvalidScript", problem, "script")
    workers, stranger = named_workers(job, pod_names)
    parsed = ScaleSpec(
        kind=kind,
        job=job,
        count=count,
        workers=workers,
        stranger=stranger,
        timeout_seconds=DEFAULT_TIMEOUT_SECONDS if spec.timeout is None else spec.timeout,
        backoff_limit=DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit,
        partial=partial,
        script=bool(spec.script),
    )
    return tuple(dict.fromkeys(problems)) or parsed


def named_workers(job: str, pod_names: Iterable[str]) -> tuple[str, str]:
    """The indices of these workers, as `0-3,5`; or no index, and the first name that no worker of the job has."""
    indices = set[int]()
    for name in pod_names:
        if (index := worker_index(job, name)) is None:
            return "", name
        indices.add(index)
    return range_words(ranges(indices)) if indices else "", ""


def _checked(spec: _ScaleIn) -> tuple[int | None, list[str]]:
    """How many workers leave, or which."""
    asked, fields = spec.to_delete, spec.to_delete.fields
    names = asked.pod_names
    if fields.has("count") and fields.has("podNames"):
        spec.fields.refuse("ContradictoryRequest", "set either count or podNames", "toDelete")
    elif fields.has("count"):
        return asked.count, []
    elif not names:
        message = "say how many workers leave (count) or which (podNames)"
        spec.fields.refuse("NothingToDelete", message, "toDelete")
    elif len(set(names)) < len(names):
        fields.refuse("ContradictoryRequest", "name each worker once", "podNames")
    elif len(names) > MOST_NAMED:
        fields.refuse("TooManyNames", f"name at most {MOST_NAMED} workers, or say how many leave (count)", "podNames")
    elif max(map(len, names)) > LONGEST_POD_NAME:
        fields.refuse("NoSuchWorker", f"no worker has a name of more than {LONGEST_POD_NAME} characters", "podNames")
    return None, names


def selected(manifest: Custom) -> str:
    """The name of the job that a request selects, or its own name if it selects none.

    The name becomes part of a subject: it has to be a valid Kubernetes name.
    """
    named = Fields(manifest.spec, "spec", []).part("selector").text("name")
    return named if _NAME.fullmatch(named) else manifest.metadata.name


def request_status(job: Job, request: Request) -> Document:
    """The status of a scale request in `job`'s history."""
    conditions = [condition(known) for known in request.conditions]
    # A request has no replicas; et-operator's own definition takes no status without this field.
    document: Document = {"phase": _PHASES[request.phase], "conditions": conditions, "replicaStatuses": {}}
    if request.phase == "Pending" and (reason := waiting_for(job, request)):
        created = request.conditions[0]
        document["phase"] = "Pending"
        problem = next((known.message for known in request.problems if known.reason == reason), "")
        message = problem or reasons.of_request(reason)
        conditions.append(condition(Condition("Pending", True, reason, message, created.since, created.updated)))
    if request.kind == "ScaleIn":
        document["toDeletePods"] = job.worker_names(member.index for member in request.leaving)
    else:
        document["addPods"] = job.worker_names(slot.index for slot in request.added)
    return document


def waiting_for(job: Job, request: Request) -> str:
    """Why a pending request waits; empty if it is the next."""
    if job.key.uid == NO_UID:
        return request.problems[0].reason if request.problems else "JobNotFound"
    if job.deleting:
        # A job that comes under its name may take a request that the job does not own.
        return reasons.JOB_DELETING
    if waits_for_turn(request.problems):
        return OVER_BUDGET
    if job.scaling.open or job.leaving:
        # One that failed before its hosts files were seen has workers to release.
        return "AnotherRequestRuns"
    if job.status.phase in ("", "Created", "Restarting", "Suspending", "Suspended"):
        return "JobNotRunning"
    if job.scaling.next_request is not request:
        return "AnotherRequestWaits"
    return "" if quota.allows(job, quota.wanted_workers(job)) else reasons.WAITS_FOR_QUOTA


_PHASES = {"Pending": "Created", "Scaling": "Scaling", "Succeeded": "ScaleSucceeded", "Failed": "ScaleFailed"}


def _status_schema(workers: str, description: str) -> Document:
    return schemas.members(
        schemas.STATUS
        | {
            "replicaStatuses": schemas.REPLICA_STATUSES
            | {"description": "Always empty; et-operator's readers expect the field."},
            workers: schemas.NAMES | {"description": description},
        },
        description=schemas.READ_ONLY,
    )


_REQUEST_RULES = (
    schemas.rule(
        f"has(self.status) || size(self.metadata.name) <= {LONGEST_REQUEST_NAME}",
        f"name the request with at most {LONGEST_REQUEST_NAME} characters: its workers carry the name in a label",
    ),
)


def _definition(change: str, short_name: str, model: type[_Request], status: Document) -> Definition:
    """The definition of a request for a `change` of workers, which the last field of its spec describes."""
    *_, asked = model.declared
    return Definition(
        f"A request for {change} workers of a TrainingJob; it is carried out once.",
        model.schema(),
        short_names=(short_name,),
        columns=(
            schemas.PHASE,
            schemas.AGE,
            schemas.column("Job", ".spec.selector.name"),
            schemas.column("Count", f".spec.{asked.name}.count", kind="integer", wide=True),
            *schemas.WHY,
        ),
        rules=_REQUEST_RULES,
        status=status,
    )


REQUEST_DEFINITIONS: Mapping[Resource[Any], Definition] = {
    SCALEINS: _definition("fewer", "sin", _ScaleIn, _status_schema("toDeletePods", "The workers that leave.")),
    SCALEOUTS: _definition("more", "sout", _ScaleOut, _status_schema("addPods", "The workers that come.")),
}
