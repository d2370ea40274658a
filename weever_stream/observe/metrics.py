"""The numbers of a job, as Prometheus reads them.

Numbers are kept here and turned into samples when somebody asks, so a scrape sees one batch whole. Every rule of the
job file is there from the start, with zeros; what is not known, such as the lag of a source that does not tell it, is
absent rather than 0. A batch that Spark repeats inside this process is counted once. Cost: a few numbers a rule; a
scrape of 20,000 rules takes one to two seconds, of a hundred 10 milliseconds.

Labels are the job, its table, the rules with their severities, and the names of targets: all of them come from the job
file, so their number is bounded. No label ever holds a key, a value or an id.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from prometheus_client.core import Metric

    from weever_stream.rules.model import Rule

__all__ = ["BUCKETS", "OUTCOMES", "Metrics", "Report"]

BUCKETS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds of a batch. A small one takes about one second; one that fills a new rule may take an hour."""
OUTCOMES = ("sent", "failed", "gave_up")
"""What becomes of a delivery to an alert target: it took it; it did not, and is asked again; it is asked no more."""
_LAGS = {"maxOffsetsBehindLatest": "offsets", "numFilesOutstanding": "files"}
"""What sources call what they have not read yet, and what it is counted in."""
_OWN = ("job_name", "table")
"""Labels of every series. Prometheus sets `job` itself."""


class Report(Protocol):
    """What is read of a batch: the part of `stream.progress.BatchReport` that metrics need."""

    @property
    def batch(self) -> int: ...  # noqa: D102
    @property
    def detected_at(self) -> datetime: ...  # noqa: D102
    @property
    def operations(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def rejected(self) -> int: ...  # noqa: D102
    @property
    def duplicates(self) -> int: ...  # noqa: D102
    @property
    def added_by_rule(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def removed_by_rule(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def open(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def unlisted(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def seconds(self) -> float: ...  # noqa: D102
    @property
    def shard_seconds(self) -> float: ...  # noqa: D102
    @property
    def stale(self) -> int: ...  # noqa: D102
    @property
    def behind(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def held(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def backfilling(self) -> Collection[str]: ...  # noqa: D102
    @property
    def drifting(self) -> Collection[str]: ...  # noqa: D102
    @property
    def drift(self) -> Iterable[Mapping[str, Any]]: ...  # noqa: D102


class Metrics(Collector):
    """The metrics of one job, in a registry of their own."""

    def __init__(self, job: str, table: str, rules: Iterable[Rule], *, clock: Callable[[], float] = time.time) -> None:
        self._own, self._clock, self._guard = (_label(job), _label(table)), clock, Lock()
        self._rules = {
            rule.name: (*self._own, label, rule.severity)
            for rule, label in _labelled({rule.name: rule for rule in rules})
        }
        self._open: dict[str, int] = {}
        self._unlisted: dict[str, int] = {}
        self._drifting: frozenset[str] = frozenset()
        self._backfilling: frozenset[str] = frozenset()
        self._opened: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._operations: Counter[str] = Counter({"put": 0, "drop": 0, "clear": 0})
        self._rejected = self._duplicates = self._stale = self._restarts = 0
        self._stale_before = 0
        self._batch = -1
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = self._shard_seconds = 0.0
        self._last_batch: float | None = None
        self._last_success = clock()
        self._lag: dict[str, float] = {}
        self._held: dict[str, int] = {}
        self._alerts: Counter[tuple[str, str]] = Counter()
        self._queues: dict[str, int] = {}
        self._learned: int | None = None
        self._events: Counter[str] = Counter()
        self._learning_failures = 0
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    # What happens

    def resume(self, progress: Mapping[str, Any] | None) -> None:
        """Takes what is open from the note of the last batch (`progress.json`): an earlier process did it."""
        if progress is None:
            return
        with self._guard:
            self._open = dict(progress.get("open", {}))
            self._unlisted = dict(progress.get("unlisted", {}))
            self._drifting = frozenset(progress.get("drifting", ()))
            self._backfilling = frozenset(progress.get("backfilling", ()))
            self._stale_before = int(progress.get("stale", 0))

    def batch(self, report: Report) -> None:
        """A batch is done. One that was told before, because Spark repeats it, changes no counter."""
        with self._guard:
            if report.batch > self._batch:
                self._count(report)
            self._batch = max(report.batch, self._batch)
            self._open, self._unlisted = dict(report.open), dict(report.unlisted)
            self._held, self._drifting = dict(report.held), frozenset(report.drifting)
            self._backfilling = frozenset(report.backfilling)
            lag = {_LAGS[name]: told for name, told in report.behind.items() if name in _LAGS}
            self._lag = {unit: float(told) for unit, told in lag.items() if _is_number(told)}
            self._last_batch = self._last_success = self._clock()

    def _count(self, report: Report) -> None:
        self._opened.update(report.added_by_rule)
        self._closed.update(report.removed_by_rule)
        self._operations.update(report.operations)
        self._rejected += report.rejected
        self._duplicates += report.duplicates
        # The report has the sum over the life of the checkpoint; it starts anew when rules are numbered anew.
        self._stale += max(report.stale - self._stale_before, 0)
        self._stale_before = report.stale
        self._buckets[bisect_left(BUCKETS, report.seconds)] += 1
        self._seconds += report.seconds
        self._shard_seconds += report.shard_seconds

    def idle(self) -> None:
        """The job has nothing to do just now: it waits for changes, or for its next look at the source."""
        with self._guard:
            self._last_success = self._clock()

    def restart(self) -> None:
        """The query is started again inside this process."""
        with self._guard:
            self._restarts += 1

    def targets(self, names: Iterable[str]) -> None:
        """The targets of alerts, told before anything happens: each has zeros from the start."""
        with self._guard:
            for name in names:
                self._queues.setdefault(name, 0)
                self._alerts.update({(name, outcome): 0 for outcome in OUTCOMES})

    def alert(self, target: str, outcome: str) -> None:
        """A delivery to a target ended: `sent`, `failed`, `gave up`."""
        with self._guard:
            self._alerts[target, outcome.replace(" ", "_")] += 1

    def queue(self, target: str, length: int) -> None:
        """So many deliveries to a target have failed and are tried again."""
        with self._guard:
            self._queues[target] = length

    def learned(self, rules: int, events: Iterable[str]) -> None:
        """A batch was learned from: so many rules hold, and this became of some."""
        with self._guard:
            self._learned = rules
            self._events.update({"added": 0, "dropped": 0})
            self._events.update(events)

    def learning_failed(self) -> None:
        """Learning has stopped."""
        with self._guard:
            self._learning_failures += 1

    # What is read

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        with self._guard:
            made = [*self._of_rules(), *self._of_batches(), *self._of_alerts(), *self._of_learning()]
        yield from made
        versions = {"version": _version("weever-stream"), "spark": _version("pyspark"), "python": python_version()}
        yield InfoMetricFamily("weever_build", "Versions of what runs.", value=versions)

    def _of_rules(self) -> Iterator[Metric]:
        labels = [*_OWN, "rule", "severity"]
        drifting = dict.fromkeys(self._drifting, 1)
        for kind, name, text, counts in (
            (GaugeMetricFamily, "weever_violations_open", "Violations that are open and listed.", self._open),
            (
                GaugeMetricFamily,
                "weever_violations_unlisted",
                "Violations that are open and only counted, because a row has too many of them.",
                self._unlisted,
            ),
            (
                GaugeMetricFamily,
                "weever_rule_drift",
                "1 while a rule breaks at a rate that its past does not explain.",
                drifting,
            ),
            (
                GaugeMetricFamily,
                "weever_rule_backfilling",
                "1 while a rule is backfilled: there may be more violations than are known.",
                dict.fromkeys(self._backfilling, 1),
            ),
            (CounterMetricFamily, "weever_violations_opened", "Violations that were added.", self._opened),
            (CounterMetricFamily, "weever_violations_closed", "Violations that were removed.", self._closed),
        ):
            family = kind(name, text, labels=labels)
            for rule, values in self._rules.items():
                family.add_metric(values, counts.get(rule, 0))
            yield family

    def _of_batches(self) -> Iterator[Metric]:
        changes = CounterMetricFamily("weever_changes", "Changes that were read.", labels=[*_OWN, "op"])
        for operation, n in self._operations.items():
            changes.add_metric([*self._own, operation], n)
        yield changes
        yield self._counter("weever_rejected_records", "Records that could not be read.", self._rejected)
        yield self._counter("weever_duplicate_keys", "New rows whose key had a row already.", self._duplicates)
        yield self._counter("weever_stale_changes", "Changes that were older than what was held.", self._stale)
        yield self._counter("weever_query_restarts", "Starts of the query anew for a new schema.", self._restarts)
        yield self._counter("weever_shard_seconds", "Time inside shards, all of them together.", self._shard_seconds)
        text = "A batch, sinks included, from when Spark handed it over."
        duration = HistogramMetricFamily("weever_batch_duration_seconds", text, labels=_OWN)
        below, cumulated = 0, []
        for bound, n in zip([*map(str, BUCKETS), "+Inf"], self._buckets, strict=True):
            below += n
            cumulated.append((bound, below))
        duration.add_metric(self._own, cumulated, self._seconds)
        yield duration
        yield self._gauge("weever_last_batch_timestamp_seconds", "When a batch was last done.", self._last_batch)
        yield self._gauge(
            "weever_last_success_timestamp_seconds",
            "When a batch was last done or nothing was to do; before that, when the job was started.",
            self._last_success,
        )
        for unit in ("offsets", "files"):
            text = f"The {unit} that the source had not read when it was last asked."
            yield self._gauge(f"weever_source_lag_{unit}", text, self._lag.get(unit))
        yield self._gauge("weever_state_rows", "Rows that shards store, replaced ones too.", self._held.get("rows"))
        size = GaugeMetricFamily("weever_state_bytes", "What shards store, and where.", labels=[*_OWN, "place"])
        for place in ("state", "files"):
            if place in self._held:
                size.add_metric([*self._own, place], self._held[place])
        yield size

    def _of_alerts(self) -> Iterator[Metric]:
        labels = [*_OWN, "target"]
        sent = CounterMetricFamily("weever_alerts_sent", "Deliveries to alert targets.", labels=[*labels, "outcome"])
        for (target, outcome), n in self._alerts.items():
            sent.add_metric([*self._own, _label(target), _label(outcome)], n)
        queue = GaugeMetricFamily(
            "weever_alert_queue_length", "Deliveries that have failed and are tried again.", labels=labels
        )
        for target, length in self._queues.items():
            queue.add_metric([*self._own, _label(target)], length)
        yield from (sent, queue)

    def _of_learning(self) -> Iterator[Metric]:
        yield self._gauge("weever_learned_rules", "Rules that were learned and hold.", self._learned)
        events = CounterMetricFamily("weever_rule_events", "What became of learned rules.", labels=[*_OWN, "event"])
        for event, n in self._events.items():
            events.add_metric([*self._own, event], n)
        yield events
        yield self._counter("weever_learning_failures", "How often learning has stopped.", self._learning_failures)

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=_OWN)
        family.add_metric(self._own, value)
        return family

    def _gauge(self, name: str, text: str, value: float | None) -> Metric:
        """A gauge with one value, or with none where it is not known."""
        family = GaugeMetricFamily(name, text, labels=_OWN)
        if value is not None:
            family.add_metric(self._own, value)
        return family


def _labelled(rules: Mapping[str, Rule]) -> Iterator[tuple[Rule, str]]:
    """Rules with their labels, no two alike: Prometheus refuses all of a scrape that has a sample twice."""
    taken: set[str] = set()
    for name in sorted(rules, key=lambda name: not name.isprintable()):
        label = _label(name)
        while label in taken:
            label += "'"
        taken.add(label)
        yield rules[name], label


def _label(text: str) -> str:
    """A name as the value of a label: in any script, but nothing that a reader could stumble over, and not cut."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _is_number(told: str) -> bool:
    try:
        float(told)
    except ValueError:
        return False
    return True


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
