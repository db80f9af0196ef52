"""How many events a service folds in a second, decoding included: needs no cluster."""

from tests.bench.fold import JOBS, a_log, rate
from tests.bench.real.table import Figure
from tests.bench.real.world import Run


async def folding(run: Run) -> list[Figure]:
    events, _ = rate(a_log(20 if run.quick else JOBS))
    return [Figure("fold with decode, one core", f"{events / 1e3:.0f},000 events/s", goal="≥ 150,000")]
