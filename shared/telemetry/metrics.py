"""Figures as a scraper reads them: Prometheus text or OpenMetrics, as it asks.

One registry a process, with what the kernel knows of it; several services in it are told apart by `service`.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from itertools import accumulate

from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.telemetry.figures import Count, Distribution, Measure, Series

BUILD = Measure("muster_build_info", "gauge", ("version",), "The release that answers; always 1")


def handler(figures: Callable[[], Iterable[Series]]) -> Handler:
    """What answers `/metrics`: the figures of that moment."""
    registry = CollectorRegistry()
    registry.register(_Figures(figures))
    ProcessCollector(registry=registry)
    return make_aiohttp_handler(registry)


class _Figures(Collector):
    def __init__(self, figures: Callable[[], Iterable[Series]]) -> None:
        self._figures = figures
        self._build = Count(BUILD)
        self._build.add(version("muster"))

    def describe(self) -> Iterable[Metric]:
        """Nothing: they are known when they are asked for."""
        return ()

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for series in (self._build, *self._figures()):
            family = families.setdefault(series.measure.name, _family(series.measure))
            _add(family, series)
        yield from families.values()


def _family(measure: Measure) -> Metric:
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family: Metric = kinds[measure.type](measure.name, measure.meaning + ".", labels=measure.labels)
    return family


def _add(family: Metric, series: Series) -> None:
    match family, series:
        case HistogramMetricFamily(), Distribution():
            bounds = [*(str(bound) for bound in series.measure.buckets), "+Inf"]
            for labels, spread in series.values.items():
                family.add_metric(labels, [*zip(bounds, accumulate(spread.counts), strict=True)], spread.total)
        case ((CounterMetricFamily() | GaugeMetricFamily()), Count()):
            for labels, value in series.values.items():
                family.add_metric(labels, value)
        case _:
            raise AssertionError((family, series))
