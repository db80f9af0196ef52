"""How fast a log is folded: decode, chain, evolve; and how fast the deciders answer.

python -m tests.bench.fold
"""

import time

from shared.eventlog import Stored
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import ScaleSucceeded, WorkersReleased
from shared.job.events.status import JobRunning
from shared.job.events.watcher import TimePassed
from shared.job.fold import Histories, History
from shared.job.metrics import JobMetrics
from shared.job.naming import JobKey, Uid
from shared.job.views import Slots
from tests.kit.builders import a_running_job, hosts_file, launcher, pods, published, scaling_in, scaling_out, worker
from tests.kit.histories import KEY, stored
from tests.kit.loop import steps_of

JOBS = 2_000
ROUNDS = 5
DECISIONS = 2_000


def a_life() -> list[AnyEvent]:
    """One job of four workers, scaled out and in, with the events that a quiet cluster makes of it."""
    request = Uid("request-1")
    return [
        *a_running_job(workers=4),
        *scaling_out(4, 5),
        pods(worker(4, phase="Pending"), worker(5, phase="Pending")),
        pods(worker(4, version=40), worker(5, version=40)),
        published(2, *range(6), request=request),
        hosts_file(2),
        pods(launcher(version=50, hosts=2)),
        ScaleSucceeded(request=request, reason="ScalingOutSucceeded"),
        JobRunning(reason="TrainingJobRunning"),
        *scaling_in(5, request=Uid("request-2")),
        published(3, *range(5), request=Uid("request-2")),
        hosts_file(3),
        TimePassed(anchor=1, timer="Drain"),
        WorkersReleased(request=Uid("request-2"), slots=(Slots(0, "worker", ((5, 5),)),), reason="Drained"),
        ScaleSucceeded(request=Uid("request-2"), reason="ScalingInSucceeded"),
        JobRunning(reason="TrainingJobRunning"),
    ]


def a_log(jobs: int = JOBS) -> list[Stored]:
    """The lives of many jobs, interleaved as they would be."""
    life = a_life()
    histories = [History(JobKey(KEY.namespace, f"job-{number}", Uid(f"uid-{number}"))) for number in range(jobs)]
    log: list[Stored] = []
    for event in life:
        for history in histories:
            line = stored(history, event, sequence=len(log) + 1)
            history.fold(line)
            log.append(line)
    return log


def folded(log: list[Stored], job_metrics: JobMetrics | None) -> float:
    """Seconds of processor time."""
    histories = Histories(job_metrics.folded if job_metrics else None)
    began = time.process_time()
    for line in log:
        histories.fold(line)
    took = time.process_time() - began
    held = sum(bool(history.held) for history in histories)
    assert not held, f"{held} histories are held"
    return took


def rate(log: list[Stored]) -> tuple[float, float]:
    """Events for each second, and how many times as long it takes with metrics; the best of some rounds."""
    rounds = [(folded(log, None), folded(log, JobMetrics())) for _ in range(ROUNDS)]
    plain, measured = (min(times) for times in zip(*rounds, strict=True))
    return len(log) / plain, measured / plain


def main() -> None:
    log = a_log()
    size = sum(len(line.body) for line in log) // len(log)
    print(f"{len(log)} events of {JOBS} jobs, {size} bytes a body")
    events, longer = rate(log)
    print(f"fold    {events:>10,.0f} events/s, with metrics {longer:.3f} times as long")
    for workers in (4, 100, 1_000):
        history = History(KEY)
        for event in a_running_job(workers=workers):
            history.fold(stored(history, event))
        rounds = max(DECISIONS // workers, 10)
        began = time.perf_counter()
        for _ in range(rounds):
            steps_of(history.job)
        took = (time.perf_counter() - began) / rounds
        print(f"decide  {took * 1e6:>10,.0f} us for all services, {workers} workers")


if __name__ == "__main__":
    main()
