"""`KIND/NAME`: which kinds a word means, and which job is meant where several have the name."""

import pytest

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.kinds import Kinds
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.schemas import Definition
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS
from shared.job.events.watcher import JobGone, JobObserved, JobRelabelled
from shared.job.fold import Histories, History
from shared.job.naming import JobKey, Uid
from shared.telling.targets import chosen, find, parse_target
from tests.kit.builders import a_spec
from tests.kit.choirs import BANDS, CHOIRS, Band, Choir
from tests.kit.histories import KEY, stored


class OtherBand(Band):
    """Its kind differs by nothing but the group."""

    resource = Resource("other.test.muster.dev", "v2", "bands", "Band", Custom)


class LoudBand(Band):
    """Its kind is written in another way."""

    resource = Resource("loud.test.muster.dev", "v2", "bands", "BAND", Custom)

    @property
    def definition(self) -> Definition:
        return Definition("Louder.", {"type": "array"}, singular="loud")


KINDS = Kinds((TRAININGJOB, Choir(), Band(), OtherBand(), LoudBand()))


def meant(text: str) -> list[str]:
    return [target.label for target in parse_target(text, KINDS).targets]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        pytest.param("trainingjob/a", ["trainingjob/a"], id="a kind"),
        pytest.param("TrainingJobs/a", ["trainingjob/a"], id="many, in any case"),
        pytest.param("tj/a", ["trainingjob/a"], id="a short name"),
        pytest.param("trainingjob.kai.alibabacloud.com/a", ["trainingjob/a"], id="with its group"),
        pytest.param("ch/a", ["choir/a"], id="a short name of a framework"),
        pytest.param("choirs.choirs.test.muster.dev/a", ["choir/a"], id="a framework's plural and group"),
        pytest.param(
            "band/a",
            ["band.bands.test.muster.dev/a", "band.other.test.muster.dev/a", "band.loud.test.muster.dev/a"],
            id="a kind of three groups",
        ),
        pytest.param("band.other.test.muster.dev/a", ["band.other.test.muster.dev/a"], id="the kind of one of them"),
        pytest.param("loud/a", ["band.loud.test.muster.dev/a"], id="another name of one of them"),
        pytest.param("scaleout/a", ["scaleout/a"], id="a request"),
        pytest.param("scaleins.kai.alibabacloud.com/a", ["scalein/a"], id="a request with its group"),
    ],
)
def test_a_word_means(text: str, labels: list[str]):
    assert meant(text) == labels


@pytest.mark.parametrize("text", ["a", "job/a", "JOB/a"])
def test_a_name_alone_may_be_any_job(text: str):
    assert len(meant(text)) == 5
    assert not parse_target(text, KINDS).is_request


@pytest.mark.parametrize("text", ["pod/a", "choir.kai.alibabacloud.com/a", "choir/", "", "/a", "a/b/c", ".other/a"])
def test_what_is_no_kind_and_name_is_wrong_usage(text: str):
    with pytest.raises(Refused, match="no KIND/NAME"):
        parse_target(text, KINDS)


def test_of_several_the_training_job_is_meant_and_else_the_only_one():
    asked = parse_target("a", KINDS)
    training, choir, band, other, _ = asked.targets
    assert chosen(asked, [band, training, choir], "team") == training
    assert chosen(asked, [other], "team") == other
    assert chosen(asked, [], "team") is None
    with pytest.raises(Refused) as refused:
        chosen(asked, [choir, band], "team")
    assert str(refused.value) == "there are several jobs team/a; say choir/a or band.bands.test.muster.dev/a"


class Log:
    """Histories, each of some resource."""

    def __init__(self) -> None:
        self.histories = Histories()
        self._sequence = 0

    def has(self, resource: Resource[Custom], uid: str, name: str = KEY.name) -> "Log":
        seen = JobObserved(kind=resource.kind, api_version=resource.api_version, generation=1, version=1, spec=a_spec())
        return self.hears(uid, seen, name)

    def hears(self, uid: str, event: JobObserved | JobGone | JobRelabelled, name: str = KEY.name) -> "Log":
        key = JobKey(KEY.namespace, name, Uid(uid))
        history = next((known for known in self.histories if known.job.key == key), None)
        self._sequence += 1
        self.histories.fold(stored(history or History(key), event, sequence=self._sequence))
        return self


def found(log: Log, text: str) -> tuple[str, str]:
    target, history = find(log.histories, parse_target(text, KINDS), KEY.namespace)
    return target.label, history.job.key.uid


def test_a_name_finds_the_training_job_or_the_only_one_whatever_its_kind():
    log = Log().has(CHOIRS, "1")
    assert found(log, "resnet") == ("choir/resnet", "1")
    assert found(log.has(TRAININGJOBS, "2"), "resnet") == ("trainingjob/resnet", "2")
    assert found(log, "choir/resnet") == ("choir/resnet", "1")


def test_the_same_kind_of_two_groups_has_to_be_told_apart_only_where_both_are_there():
    log = Log().has(BANDS, "1").has(OtherBand.resource, "2", name="vgg")
    assert found(log, "band/resnet") == ("band.bands.test.muster.dev/resnet", "1")
    log.has(OtherBand.resource, "3")
    with pytest.raises(
        Refused, match=r"say band\.bands\.test\.muster\.dev/resnet or band\.other\.test\.muster\.dev/resnet"
    ):
        found(log, "band/resnet")
    assert found(log, "band.other.test.muster.dev/resnet") == ("band.other.test.muster.dev/resnet", "3")


def test_of_several_kinds_the_one_that_is_still_there_is_meant():
    log = Log().has(BANDS, "1").has(CHOIRS, "2").hears("1", JobGone(version=9))
    assert found(log, "resnet") == ("choir/resnet", "2")
    assert found(log, "band/resnet") == ("band.bands.test.muster.dev/resnet", "1")


def test_a_later_life_of_the_name_is_meant():
    log = Log().has(CHOIRS, "1").hears("1", JobGone(version=9)).has(CHOIRS, "2")
    # What is recorded of the former one later, such as its seal, makes it no newer.
    log.hears("1", JobRelabelled(version=10))
    assert found(log, "resnet") == ("choir/resnet", "2")
    target, history = find(log.histories, parse_target("resnet", KINDS), KEY.namespace, uid="1")
    assert (target.label, history.job.key.uid) == ("choir/resnet", "1")


@pytest.mark.parametrize(
    ("text", "what"), [("choir/vgg", "Choir"), ("vgg", "job"), ("scaleout/vgg", "ScaleOut"), ("band/vgg", "job")]
)
def test_what_the_log_does_not_know_is_one_line(text: str, what: str):
    with pytest.raises(Refused, match=f"^the log knows no {what} team-a/vgg; "):
        found(Log().has(CHOIRS, "1"), text)


def test_requests_are_no_jobs():
    assert [parse_target(f"{kind.kind}/a", KINDS).is_request for kind in (SCALEINS, SCALEOUTS)] == [True, True]
