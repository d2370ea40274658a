"""Watches one job: keeps its metrics, serves them, and logs what happens to it.

`weever run` opens it before anything else, so that a port that is taken is told before Spark starts, and closes it
last. What cannot be told must not stop a batch: a metrics file on a full disk is logged, once, and tried again.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from weever_stream.errors import EngineError
from weever_stream.observe import logs
from weever_stream.observe.endpoint import Endpoint, write_file
from weever_stream.observe.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from weever_stream.job import options
    from weever_stream.observe.lineage import Lineage
    from weever_stream.observe.metrics import Report
    from weever_stream.rules.file import RuleFile

    _Report = TypeVar("_Report", bound=Report)

__all__ = ["Watch", "watching"]

_log = logs.get("job")
_OVER = {"rate": "the rate is back", "changed": "the rule was changed", "gone": "the rule is no longer in force"}


class Watch:
    """What is told of a job while it runs."""

    def __init__(self, metrics: Metrics, file: str | None = None, lineage: Lineage | None = None) -> None:
        self.metrics, self._lineage = metrics, lineage
        self._file, self._file_failed = file, False

    def observed(self, tell: Callable[[_Report], None]) -> Callable[[_Report], None]:
        """Takes note of a batch, then tells of it as before."""

        def observe(report: _Report) -> None:
            self.batch(report)
            tell(report)

        return observe

    def batch(self, report: Report) -> None:
        """A batch is done."""
        self.metrics.batch(report)
        added, removed = (sum(counts.values()) for counts in (report.added_by_rule, report.removed_by_rule))
        _log.info(
            "batch_done",
            told=True,
            batch_id=report.batch,
            changes=sum(report.operations.values()),
            rejected=report.rejected,
            added=added,
            removed=removed,
            open=sum(report.open.values()),
            seconds=report.seconds,
        )
        if report.rejected:
            _log.warning("records_rejected", told=True, batch_id=report.batch, records=report.rejected)
        if report.duplicates:
            _log.warning("duplicate_keys", told=True, batch_id=report.batch, rows=report.duplicates)
        for notice in report.drift:
            self._drift(report.batch, notice)
        self.write()
        if self._lineage is not None:
            self._lineage.batch(report)

    def _drift(self, batch: int, notice: Mapping[str, Any]) -> None:
        """A rule has begun to break at a rate that its past does not explain, or this is over."""
        name, since, still_open = notice["rule"], notice["since"], notice["open"]
        recent, baseline = (round(1000 * notice[rate], 3) for rate in ("recent", "baseline"))
        if notice["event"] == "ended":
            reason = notice["reason"]
            message = f"{name} drifts no more: {_OVER[reason]}"
            _log.info(
                "rule_drift_ended", message, batch_id=batch, rule=name, since=since, open=still_open, reason=reason
            )
            return
        _log.warning(
            "rule_drifts",
            f"{name} is broken by {recent:.3g} of 1,000 changes since {since}, and used to be by {baseline:.3g}:"
            " is the rule still true?",
            batch_id=batch,
            rule=name,
            since=since,
            open=still_open,
            recent=recent,
            baseline=baseline,
        )

    def query(self, query_id: str) -> None:
        """The query runs."""
        logs.bind(query_id=query_id)
        _log.info("query_started", told=True)

    def idle(self) -> None:
        """The query has nothing to do just now."""
        self.metrics.idle()

    def restart(self) -> None:
        """The query ends because its source has a new schema, and is started again."""
        self.metrics.restart()
        _log.warning("schema_restart", "the table has a new schema", told=True)

    def rules_changed(self, changes: Iterable[str]) -> None:
        """The rules are not those of the checkpoint, and may change. `changes`: what becomes of them, by name."""
        _log.warning("rules_changed", told=True, changes=list(changes))

    def learned(self, rules: int, events: Iterable[str]) -> None:
        """A batch was learned from: so many rules hold, and this became of some."""
        told = list(events)
        self.metrics.learned(rules, told)
        added, dropped = told.count("added"), told.count("dropped")
        _log.info("rules_learned", told=True, rules=rules, added=added, dropped=dropped)

    def learning_failed(self, reason: str) -> None:
        """Learning has stopped; detection goes on."""
        self.metrics.learning_failed()
        _log.warning("learning_failed", told=True, reason=reason)

    def write(self) -> None:
        """Replaces the metrics file."""
        if self._file is None:
            return
        try:
            write_file(self.metrics, self._file)
            self._file_failed = False
        except OSError as error:
            if not self._file_failed:
                _log.warning("metrics_not_written", f"{self._file}: {error.strerror or type(error).__name__}")
            self._file_failed = True


@contextmanager
def watching(
    job: str,
    file: RuleFile,
    settings: options.Metrics,
    *,
    notice: Callable[[str], None],
    lineage: Callable[[str], Lineage | None] = lambda run_id: None,
) -> Iterator[Watch]:
    """Watches the job of a rule file within the block. `job`: its name. `notice` is told where metrics are served.

    `lineage` makes what tells a catalog, from the id of this run.
    """
    metrics, run_id = Metrics(job, file.table, file.rules), str(uuid4())
    logs.bind(run_id=run_id)
    with ExitStack() as open_until_the_end:
        if settings.port is not None:
            endpoint = open_until_the_end.enter_context(Endpoint(metrics, settings.host, settings.port))
            notice(f"metrics at {endpoint.url}")
        if settings.file is not None:
            _try_file(metrics, settings.file)
        told = lineage(run_id)
        watch = Watch(metrics, settings.file, open_until_the_end.enter_context(told) if told else None)
        _log.info("job_started", told=True, job=job, table=file.table, rules=len(file.rules))
        try:
            yield watch
        finally:
            watch.write()
            _log.info("job_stopped", told=True, job=job, table=file.table)


def _try_file(metrics: Metrics, path: str) -> None:
    try:
        write_file(metrics, path)
    except OSError as error:
        raise EngineError(
            f"metrics cannot be written to {path}: {error.strerror or type(error).__name__}",
            hint=f"make the folder {Path(path).parent}, or name another `file` under `metrics`",
        ) from None
