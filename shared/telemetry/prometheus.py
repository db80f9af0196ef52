"""The metrics for a scraper: Prometheus text or OpenMetrics, as it asks.

One registry for each process, with the kernel's figures of the process; the label `service` separates its services.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from itertools import accumulate

from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from shared.telemetry.metrics import Count, Histogram, Metric, Series

BUILD = Metric("muster_build_info", "gauge", ("version",), "The release that answers; always 1")


def handler(current: Callable[[], Iterable[Series]]) -> Handler:
    """The handler of `/metrics`."""
    registry = CollectorRegistry()
    registry.register(_Collector(current))
    ProcessCollector(registry=registry)
    return make_aiohttp_handler(registry)


class _Collector(Collector):
    def __init__(self, current: Callable[[], Iterable[Series]]) -> None:
        self._current = current
        self._build = Count(BUILD)
        self._build.add(version("muster"))

    def describe(self) -> Iterable[Family]:
        """Nothing: the metrics are known at scrape time."""
        return ()

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for series in (self._build, *self._current()):
            family = families.setdefault(series.metric.name, _family(series.metric))
            _add(family, series)
        yield from families.values()


def _family(metric: Metric) -> Family:
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family: Family = kinds[metric.type](metric.name, metric.meaning + ".", labels=metric.labels)
    return family


def _add(family: Family, series: Series) -> None:
    match family, series:
        case HistogramMetricFamily(), Histogram():
            bounds = [*(str(bound) for bound in series.metric.buckets), "+Inf"]
            for labels, spread in series.values.items():
                family.add_metric(labels, [*zip(bounds, accumulate(spread.counts), strict=True)], spread.total)
        case ((CounterMetricFamily() | GaugeMetricFamily()), Count()):
            for labels, value in series.values.items():
                family.add_metric(labels, value)
        case _:
            raise AssertionError((family, series))
