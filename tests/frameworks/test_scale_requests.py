import pytest

from shared.frameworks.scale_requests import parse_scale
from shared.job.spec import ScaleKind, ScaleSpec
from tests.frameworks.documents import ABSENT, Document, changed, custom, scale_in, scale_out


@pytest.mark.parametrize(
    ("kind", "document", "spec"),
    [
        pytest.param(
            "ScaleIn", scale_in(count=2), ScaleSpec(kind="ScaleIn", job="resnet", count=2), id="so many workers less"
        ),
        pytest.param(
            "ScaleIn",
            scale_in(podNames=["resnet-worker-1", "resnet-worker-10"]),
            ScaleSpec(kind="ScaleIn", job="resnet", workers="1,10"),
            id="these workers less",
        ),
        pytest.param(
            "ScaleIn",
            scale_in(podNames=[*(f"resnet-worker-{index}" for index in range(999)), "resnet-worker-01"]),
            ScaleSpec(kind="ScaleIn", job="resnet", stranger="resnet-worker-01"),
            id="a name that no worker can have is kept, and none beside it",
        ),
        pytest.param(
            "ScaleIn", scale_in(count=1, podNames=None), ScaleSpec(kind="ScaleIn", job="resnet", count=1),
            id="a null beside a count is nothing",
        ),
        pytest.param(
            "ScaleOut", scale_out(count=3), ScaleSpec(kind="ScaleOut", job="resnet", count=3), id="so many more"
        ),
        pytest.param(
            "ScaleOut",
            changed(changed(scale_out(), "spec.timeout", 300), "spec.backoffLimit", 0),
            ScaleSpec(kind="ScaleOut", job="resnet", count=1, timeout_seconds=300, backoff_limit=0),
            id="a timeout and no replacements",
        ),
        pytest.param(
            "ScaleOut",
            changed(changed(scale_out(), "spec.script", "/join.sh"), "spec.env", [{"name": "A", "value": "b; rm x"}]),
            ScaleSpec(kind="ScaleOut", job="resnet", count=1, script=True),
            id="a script stays in the resource",
        ),
        pytest.param(
            "ScaleOut", changed(scale_out(), "spec.script", ""), ScaleSpec(kind="ScaleOut", job="resnet", count=1),
            id="an empty script is none",
        ),
    ],
)  # fmt: skip
def test_accepted(kind: ScaleKind, document: Document, spec: ScaleSpec) -> None:
    assert parse_scale(kind, custom(document)) == spec


@pytest.mark.parametrize(
    ("path", "value", "reason", "field"),
    [
        pytest.param("spec.toDelete", ABSENT, "NothingToDelete", "", id="nothing said"),
        pytest.param("spec.toDelete", {}, "NothingToDelete", "", id="nothing in it"),
        pytest.param("spec.toDelete", {"podNames": []}, "NothingToDelete", "", id="an empty list"),
        pytest.param("spec.toDelete", {"count": 0}, "InvalidValue", "spec.toDelete.count", id="none"),
        pytest.param(
            "spec.toDelete", {"count": 1, "podNames": ["a"]}, "ContradictoryRequest", "", id="how many and which"
        ),
        pytest.param(
            "spec.toDelete", {"podNames": ["a", "a"]}, "ContradictoryRequest", "spec.toDelete.podNames",
            id="the same worker twice",
        ),
        pytest.param(
            "spec.toDelete", {"podNames": ["a", 7]}, "InvalidValue", "spec.toDelete.podNames", id="a number as name"
        ),
        pytest.param(
            "spec.toDelete",
            {"podNames": [f"worker-{index}" for index in range(1_001)]},
            "TooManyNames",
            "spec.toDelete.podNames",
            id="more names than fit into an event",
        ),
        pytest.param(
            "spec.toDelete",
            {"podNames": ["w" * 64]},
            "NoSuchWorker",
            "spec.toDelete.podNames",
            id="a name that no pod can have",
        ),
        pytest.param("spec.selector", ABSENT, "NoJobName", "spec.selector.name", id="no job named"),
        pytest.param("spec.selector.name", "", "NoJobName", "", id="an empty name"),
        pytest.param("spec.env", [{"value": "x"}], "InvalidEnvironment", "spec.env[0].name", id="a variable unnamed"),
        pytest.param("spec.env", [{"name": "a=b"}], "InvalidEnvironment", "spec.env[0].name", id="an equals sign"),
        pytest.param(
            "spec.env", [{"name": "A", "value": "\0"}], "InvalidEnvironment", "spec.env[0].value", id="a null byte"
        ),
        *(
            pytest.param("spec.env", [{"name": "A", "value": one}], "InvalidEnvironment", "spec.env[0].value", id=what)
            for one, what in {"\nid": "a second line", "x\rid": "a carriage return"}.items()
        ),
        *(
            pytest.param("spec.env", [{"name": name, "value": "x"}], "InvalidEnvironment", "spec.env[0].name", id=name)
            for name in (
                "LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV", "PS4", "IFS", "SHELLOPTS", "BASH_FUNC_ls%%", "PERL5OPT",
                "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "a b", "a;id", "\nA",
            )
        ),
        *(
            pytest.param("spec.script", script, "InvalidScript", "", id=script)
            for script in (
                "/proc/self/environ", "//proc/1/environ", "/./proc/self/cmdline", "proc/self/environ", "/dev/stdin",
                "/dev/fd/0", "/sys/kernel/notes", "/opt/../proc/self/environ", "../proc/self/environ", "/a\nb",
            )
        ),
        pytest.param("metadata.name", "r" * 64, "InvalidName", "", id="a name that no label can hold"),
    ],
)  # fmt: skip
def test_a_scale_in_is_refused(path: str, value: object, reason: str, field: str) -> None:
    problems = parse_scale("ScaleIn", custom(changed(scale_in(), path, value)))
    assert isinstance(problems, tuple)
    assert (problems[0].reason, problems[0].field) == (reason, field or path)
    assert problems[0].message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("TOKEN", "a b; $(id) 'ü\"\t", id="what a shell would take apart"),
        pytest.param("my.setting-1", "", id="the names that a pod's variables have"),
        pytest.param("PATH", "/opt/bin:/usr/bin", id="where programs are"),
        pytest.param("PYTHONPATH", "/job/code", id="where modules are"),
        pytest.param("LDAP_URL", "ldap://x", id="a name that only begins like another"),
    ],
)
def test_other_variables_of_a_script_are_taken_as_they_are(name: str, value: str) -> None:
    document = changed(scale_in(), "spec.env", [{"name": name, "value": value}])
    assert isinstance(parse_scale("ScaleIn", custom(document)), ScaleSpec)


@pytest.mark.parametrize("script", ["rescale.sh", "./rescale.sh", "/job/processor/run.sh", "/job/..hidden", "/a b.sh"])
def test_a_file_of_the_launcher_is_a_script(script: str) -> None:
    spec = parse_scale("ScaleIn", custom(changed(scale_in(), "spec.script", script)))
    assert isinstance(spec, ScaleSpec)
    assert spec.script


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        pytest.param("spec.toAdd", ABSENT, "NothingToAdd", id="nothing said"),
        pytest.param("spec.toAdd", {}, "NothingToAdd", id="nothing in it"),
        pytest.param("spec.toAdd.count", 0, "InvalidValue", id="none"),
        pytest.param("spec.toAdd.count", 7001, "InvalidValue", id="more than a hosts file can list"),
        pytest.param("spec.selector.name", ABSENT, "NoJobName", id="no job named"),
    ],
)
def test_a_scale_out_is_refused(path: str, value: object, reason: str) -> None:
    problems = parse_scale("ScaleOut", custom(changed(scale_out(), path, value)))
    assert isinstance(problems, tuple)
    assert problems[0].reason == reason
