"""`muster get`: the jobs that the log knows, as a table."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from muster.kinds import known_kinds, word_of
from muster.reading import everything, open_log
from shared.frameworks.kinds import Kinds
from shared.job.fold import History
from shared.job.naming import NO_UID
from shared.job.state import Job
from shared.job.views import alive
from shared.process.settings import Settings

WIDE = 10_000
"""Characters of a line; none of it is cut where nobody looks at a terminal of some width."""


async def jobs(settings: Settings, namespace: str, *, gone: bool) -> None:
    """Every job of a namespace (all of them when empty), also those that are gone when asked for."""
    async with open_log(settings) as log:
        histories, _ = await everything(log)
    show(histories, namespace, known_kinds(), gone=gone)


def show(histories: Iterable[History], namespace: str, kinds: Kinds, *, gone: bool) -> None:
    """Print jobs by namespace, name and kind; wide lines are left to the terminal, as kubectl does."""
    table = _table(histories, namespace, kinds, gone=gone)
    if table.row_count:
        Console(width=WIDE).print(table)
    else:
        print("no jobs" + (f" in namespace {namespace}" if namespace else ""))


def _note(job: Job) -> str:
    if job.integrity.doubt is not None:
        return job.integrity.sentence
    if job.gone or job.another:
        return "gone" if job.gone else "of another operator"
    return f"{'edit refused' if job.phase else 'refused'}: {job.problems[0].reason}" if job.problems else ""


def _table(histories: Iterable[History], namespace: str, kinds: Kinds, *, gone: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    for column in ("NAMESPACE", "KIND", "NAME", "PHASE", "PODS", "REQUESTS", "EVENTS AT", "NOTE"):
        table.add_column(column, no_wrap=True)
    for history in sorted(histories, key=lambda history: history.job.key):
        job = history.job
        if job.key.uid == NO_UID or (namespace and job.key.namespace != namespace) or (job.gone and not gone):
            continue
        note = history.held or _note(job)
        table.add_row(
            job.key.namespace,
            word_of(job, kinds),
            job.key.name,
            job.phase or "-",
            _pods(job),
            _requests(job),
            str(history.sequence),
            note,
        )
    return table


def _pods(job: Job) -> str:
    """Those that run, of those that shall be."""
    running = sum(alive(pod) and pod.phase == "Running" and pod.slot in job.slots for pod in job.pods.values())
    return f"{running}/{len(job.slots)}" if not job.over else "-"


def _requests(job: Job) -> str:
    done = sum(request.over for request in job.requests.values())
    return f"{done}/{len(job.requests)}" if job.requests else "-"
