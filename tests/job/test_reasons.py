"""The catalogue of reasons: every word that the code says is in it, and every word in it is said."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import services.scaler.core.effects
import services.scheduler.core.effects
import services.status.core.effects
from shared.job import reasons
from shared.job.events.catalog import AUTHORS
from shared.job.events.event import PERMANENT
from shared.job.fold import Held
from shared.job.state import Phase
from shared.job.steps import Effect

ROOT = Path(__file__).parents[2]
CAMEL = re.compile(r"([A-Z]+[a-z0-9]+)+[A-Z]*")
OF_A_KIND = re.compile(r"{kind}[A-Z]\w+")

THEIRS = {*reasons.PODS, *reasons.DISRUPTIONS, *reasons.REFUSALS}
"""Words that kube-scheduler, kubelet and API server say, too."""

OTHER_WORDS = {
    "Kueue's": {"Workload", "WorkloadSliceReplaced"},
    "the kube-scheduler's": {"PodGroup"},
    "conditions and phases": {
        *get_args(Phase),
        *("WorkersCreated", "WorkersReady", "LauncherCreated", "ScaleSucceeded", "ScaleFailed", "ScriptExecuted"),
        *(
            "Pending",
            "Ready",
            "ContainersReady",
            "Unknown",
            "PodScheduled",
            "DisruptionTarget",
            "Refused",
            "WorkerCreated",
            "Deleting",
            "ScalingIn",
            "ScalingOut",
            "AllContainersRestarting",
            "ContainersReady",
            "Unknown",
        ),
    },
    "how the kubelet restarts containers": {"ContainerCannotRun", "In", "RestartAllContainers"},
    "timers": {
        *(
            "ActiveDeadline",
            "Avoided",
            "DisruptionDrain",
            "Drain",
            "DrainCheck",
            "Restart",
            "ScalingDeadline",
            "Scheduling",
            "Seal",
            "Stall",
        ),
        *(
            "Grow",
            "JobWait",
            "LauncherWait",
            "WindingDown",
            "ScriptDeadline",
            "Settle",
            "Steady",
            "Seal",
            "TimeToLive",
            "Unseen",
            "Waiting",
        ),
    },
    "problems of a spec, which have a sentence of their own": {
        "RoleRemoved",
        "TrainingRuntimeNotFound",
        "TrainingRuntimesNotListed",
    },
    "policies": {"All", "Always", "Any", "ExitCode", "First", "Job", "Never", "None", "OnFailure", "Pod", "Pods"},
    "kinds and types": {
        *("Answers", "CleanPodPolicy", "ConfigMap", "Effect", "Scale", "ScaleIn", "ScaleOut", "Service"),
        *("Uid", "WorkerName"),
    },
    "answers of the API server that a service handles": {
        *("AlreadyExists", "InternalError", "NotFound", "ServiceUnavailable", "TooManyRequests"),
    },
    "answers and documents of the aggregated API": {
        *(
            *("HistoryMusterDev", "Object"),
            "APIResourceList",
            "Accept",
            "Ambiguous",
            "BadRequest",
            "Expired",
            "Failure",
            "Fold",
            "Link",
            "List",
            "LogReplaced",
            "LogTruncated",
            "MethodNotAllowed",
            "NoRight",
            "NotAcceptable",
            "NoFrontProxy",
            "PartialObjectMetadata",
            "RequestEntityTooLarge",
            "Status",
            "SubjectAccessReview",
            "Table",
            "Trust",
            "Unauthorized",
        ),
    },
    "categories of characters": {"Cc", "Cs"},
    "of reports of progress": {
        *("BeyondTheEnd", "LogFull", "Malformed", "NoAuthority", "NotOfThisJob", "OutOfRange", "Over", "Report"),
        *("StepBackwards", "TerminationMessage", "Timeout", "TooLarge", "TooMany", "Unavailable"),
    },
    "of the audit service": {"Authorization", "NoRoom", "NoToken", "QueueFull", "ResponseComplete"},
    "Kubernetes' own": {
        *("ContainerCreating", "Created", "Error", "Exists", "False", "NoExecute"),
        *(
            "NoSchedule",
            "Normal",
            "PodInitializing",
            "Pulled",
            "Pulling",
            "StartError",
            "Started",
            "SuccessfulAttachVolume",
            "ToBeDeletedByClusterAutoscaler",
            "True",
            "Warning",
        ),
    },
}
"""CamelCase words of the code that are no reasons."""


def words(file: Path) -> Iterator[str]:
    """Every CamelCase text of a file; of `f"{job.resource.kind}Running"` it is `{kind}Running`."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Constant(value=str(text)) if CAMEL.fullmatch(text):
                yield text
            case ast.Attribute(value=ast.Name(id="reasons"), attr=name) if name.isupper():
                if isinstance(word := getattr(reasons, name), str):
                    yield word
            case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Attribute(attr="kind")), ast.Constant(value=text)]):
                if OF_A_KIND.fullmatch(f"{{kind}}{text}"):
                    yield f"{{kind}}{text}"


def said() -> dict[str, str]:
    """Each word of the code with a file that says it."""
    files = [*(ROOT / "services").rglob("*.py"), *(ROOT / "shared/job").rglob("*.py")]
    return {word: file.name for file in files if file.name != "reasons.py" for word in words(file)}


SAID = said()
CATALOGUED = {word for part in reasons.CATALOGUE.values() for word in part}
BASES = Effect, services.scheduler.core.effects.OfWorkload
EFFECTS = {effect.__name__ for base in BASES for effect in base.__subclasses__()}
TYPES = {type_.__struct_config__.tag for type_ in AUTHORS}


def test_every_reason_that_the_code_says_is_in_the_catalogue():
    known = CATALOGUED | EFFECTS | TYPES | {word for group in OTHER_WORDS.values() for word in group}
    missing = {word: file for word, file in SAID.items() if word not in known}
    assert missing == {}, "put it into shared/job/reasons.py; a word that is no reason goes into OTHER_WORDS"


def test_a_word_that_is_no_reason_is_said_by_the_code():
    assert {word for group in OTHER_WORDS.values() for word in group if word} - {*SAID} == set()


def test_every_word_of_muster_s_own_in_the_catalogue_is_said():
    of_frameworks = {
        word for file in (ROOT / "shared/frameworks").rglob("*.py") for word in words(file) if word in reasons.REQUESTS
    }
    joined = {"JobRestarting", "ScalingInFailed", "ScalingOutFailed", "{kind}Restarting"}
    assert CATALOGUED - THEIRS - {*SAID} - of_frameworks - joined == set()


def test_every_reason_to_hold_a_history_is_in_the_catalogue():
    assert {*get_args(Held)} <= {*reasons.HISTORIES}


@pytest.mark.parametrize("part", reasons.CATALOGUE)
def test_a_sentence_begins_in_lower_case_and_has_no_full_stop(part: str):
    for word, reason in reasons.CATALOGUE[part].items():
        assert reason.sentence, word
        assert not reason.sentence.endswith("."), word
        first = reason.sentence.split()[0]
        assert first[0].islower() or first == first.upper(), word


def test_what_is_refused_for_a_final_reason_is_permanent():
    assert PERMANENT == ("Invalid", "NoScale", "UnknownField")


def test_a_sentence_has_its_values_put_in():
    told = reasons.told(reasons.ENDS, "DeadlineExceeded", seconds=60)
    assert told == "it was active for 60 s (activeDeadlineSeconds)"


def test_a_word_of_one_kind_has_the_sentence_of_all_kinds():
    assert reasons.of_job("TFJob", "TFJobRunning") == "the job runs"
    assert reasons.of_job("TFJob", "SomebodyElsesWord") == "SomebodyElsesWord"


def test_the_message_of_its_author_is_preferred_to_our_sentence():
    assert reasons.plain("Unschedulable") == "Unschedulable: the kube-scheduler finds no node for it"
    assert reasons.plain("Unschedulable", "3 Insufficient cpu") == "Unschedulable: 3 Insufficient cpu"
    assert reasons.plain("TrainingJobRunning") == "TrainingJobRunning"


def test_a_word_may_mean_another_thing_of_a_request_than_of_a_job():
    assert reasons.of_request("BelowMinimum") == "the job would have fewer workers than minReplicas"
    assert reasons.plain("BelowMinimum") == "BelowMinimum: fewer workers than minReplicas"


def test_the_modules_of_effects_are_loaded():
    # `Effect.__subclasses__` knows what was imported.
    modules = (services.scaler.core.effects, services.scheduler.core.effects, services.status.core.effects)
    assert {"CreatePod", "WriteHosts", "Announce"} <= EFFECTS
    assert all(module.__name__ in {effect.__module__ for effect in Effect.__subclasses__()} for module in modules)
