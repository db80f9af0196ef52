"""`/metrics`: what a scraper reads, in both formats, of one service, of several, and of replicas."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from shared.eventlog.inspection import Room
from shared.job.events.event import Author
from shared.job.metrics import JobMetrics
from shared.process import health
from shared.runtime.run import Runtime
from tests.kit.tasks import beside
from tests.kit.virtual_time import until
from tests.kit.world import TRAININGJOBS, World, a_scaled_life, a_training_job
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.service.test_health import Idle, answer

KIND = "TrainingJob.kai.alibabacloud.com"
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(*services: health.Health, accept: str = "") -> tuple[str, str]:
    """The answer's content type and text."""
    status, kind, body = answer(services, "/metrics", accept)
    assert status == 200
    return kind, body.decode()


def linted(text: str) -> list[Metric]:
    """What the text says, once it is as a scraper wants it."""
    families = list(prometheus(text))
    assert families
    names = [family.name for family in families]
    assert len(names) == len({*names}), "a name is told of twice"
    series = [(sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples]
    assert len(series) == len({*series}), "a series is told of twice"
    for family in families:
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            assert sample.value >= 0, sample
    return families


def values(text: str, prefix: str = "muster_") -> Values:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in linted(text)
        for sample in family.samples
        if sample.name.startswith(prefix)
    }


def told(found: Values, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def of_jobs(found: Values) -> Values:
    return {key: value for key, value in found.items() if not any(name == "service" for name, _ in key[1])}


@asynccontextmanager
async def a_replica(
    journal: MemoryJournal, author: Author = "status", *, owner: bool = True, names: bool = True
) -> AsyncIterator[health.Health]:
    """A service that folds this log, as a process would stand."""
    known = health.Health(author)
    runtime = Runtime(
        Idle(),
        MemoryEventLog(journal, user=author),
        owns=lambda: False,
        metrics=known.metrics,
        job_metrics=JobMetrics(names=names),
    )
    known.trouble, known.runtime, known.owner = "", runtime, lambda: owner
    async with beside(runtime.run()):
        await until(lambda: runtime.current, "the fold")
        yield known


def asked(*services: health.Health) -> Values:
    return values(scraped(*services)[1])


async def a_log() -> MemoryJournal:
    """Two jobs: one through its whole life, one that runs."""
    async with World() as world:
        await a_scaled_life(world)
        world.apply(TRAININGJOBS, {"metadata": {"name": "bert"}, "spec": a_training_job()["spec"]})
        await world.running("bert")
        await world.quiet()
        return world.journal


async def test_a_scraper_gets_the_format_that_it_asks_for():
    async with a_replica(await a_log()) as known:
        kind, text = scraped(known)
        assert kind.startswith("text/plain")
        linted(text)
        kind, text = scraped(known, accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        names = {family.name for family in openmetrics(text)}
        assert names >= {"muster_jobs", "muster_jobs_created", "process_cpu_seconds"}


async def test_jobs_are_told_of_as_the_log_has_them():
    async with a_replica(await a_log()) as known:
        found = asked(known)
    place = {"job_namespace": "team-a", "kind": KIND}
    assert told(found, "muster_jobs_created_total", **place) == 2
    assert told(found, "muster_jobs_successful_total", **place) == 1
    assert told(found, "muster_jobs_failed_total", **place) == 0
    assert told(found, "muster_jobs", **place, phase="Running") == 1
    assert told(found, "muster_job_start_duration_seconds_count", kind=KIND) == 2
    assert told(found, "muster_scale_duration_seconds_count", direction="Out", outcome="Succeeded") == 1
    assert told(found, "muster_scale_duration_seconds_count", direction="In", outcome="Succeeded") == 1
    assert told(found, "muster_log_pending_events", service="status") == 0
    assert told(found, "muster_owner", service="status") == 1


async def test_by_default_no_metric_names_a_namespace():
    async with a_replica(await a_log(), names=False) as known:
        found = asked(known)
    assert told(found, "muster_jobs_created_total", job_namespace="", kind=KIND) == 2
    assert not any("team-a" in str(labels) for _, labels in found)


async def test_after_a_restart_and_in_another_replica_the_counts_of_jobs_are_the_same():
    journal = await a_log()
    async with a_replica(journal) as first:
        before = of_jobs(asked(first))
    assert before
    async with a_replica(journal) as again, a_replica(journal) as other:
        assert of_jobs(asked(again)) == before
        assert of_jobs(asked(other)) == before


async def test_only_the_replica_that_acts_tells_of_jobs_and_only_when_it_has_folded_all():
    journal = await a_log()
    async with a_replica(journal, owner=False) as standby:
        found = asked(standby)
        assert {name for name, _ in of_jobs(found)} == {"muster_build_info"}
        assert told(found, "muster_log_position", service="status") == len(journal.events)
        standby.owner = lambda: True
        assert ("muster_jobs_created_total", frozenset({"job_namespace": "team-a", "kind": KIND}.items())) in (
            asked(standby)
        )
        assert standby.runtime is not None
        standby.runtime.current = False
        assert {name for name, _ in of_jobs(asked(standby))} == {"muster_build_info"}


async def test_several_services_of_one_process_are_told_apart():
    journal = await a_log()
    async with a_replica(journal, "status") as status, a_replica(journal, "scaler", owner=False) as scaler:
        assert scaler.runtime is not None
        scaler.runtime.job_metrics = None
        waiting = health.Health("watcher")
        found = asked(waiting, scaler, status)
    assert {dict(labels)["service"] for name, labels in found if name == "muster_ready"} == {
        "watcher",
        "scaler",
        "status",
    }
    assert told(found, "muster_ready", service="watcher") == 0
    assert told(found, "muster_log_connected", service="watcher") == 0
    assert told(found, "muster_ready", service="scaler") == 1


async def test_a_held_history_is_told_with_its_reason():
    async with a_replica(await a_log()) as known:
        assert known.runtime is not None
        history = next(iter(known.runtime.histories))
        history.hold("UnknownEvent", "unknown event JobTeleported")
        found = asked(known)
    assert told(found, "muster_histories_held", service="status", reason="UnknownEvent") == 1
    assert told(found, "muster_histories_held", service="status", reason="NotConfirmed") == 0


def test_how_full_the_log_is_is_told_by_stream_and_by_server():
    known = health.Health("status")
    assert not {name for name, _ in asked(known) if name.endswith("_bytes")}
    known.rooms = (Room("JOBS", used=7, most=0, remedy=""), Room("NATS n0", used=70, most=100, remedy=""))
    found = asked(known)
    assert told(found, "muster_log_bytes", service="status", store="JOBS") == 7
    assert told(found, "muster_log_bytes", service="status", store="NATS n0") == 70
    assert {labels for name, labels in found if name == "muster_log_max_bytes"} == {
        frozenset({"service": "status", "store": "NATS n0"}.items())
    }, "what has no bound cannot be full"
    assert told(found, "muster_log_max_bytes", service="status", store="NATS n0") == 100


def test_two_processes_in_one_share_no_figures():
    first, second = health.Health("status"), health.Health("status")
    first.metrics.append("Conflict")
    assert told(asked(first), "muster_appends_total", service="status", outcome="Conflict") == 1
    assert told(asked(second), "muster_appends_total", service="status", outcome="Conflict") == 0
