"""What a batch taught, in lines: for a person on a terminal, or one JSON object each."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from weever_stream.cli.progress import BatchLines
from weever_stream.drawing import escaped, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.learn.events import RuleEvent
    from weever_stream.stream.lessons import LearnReport

__all__ = ["LessonLines", "pair_told", "report_lines"]

_SHOWN = 20
_VALUES = 120
"""Characters of a row's values on a terminal; elsewhere all are shown."""
_SIGNS = {"added": "+", "dropped": "-"}


class LessonLines:
    """Tells of batches on standard output, of everything else on standard error."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, shown: int = _SHOWN) -> None:
        self._json, self._quiet, self._shown = as_json, quiet, shown
        self._lines = BatchLines()

    def status(self, text: str) -> Any:
        """A spinner while something long goes on."""
        return self._lines.status(text)

    def notice(self, text: str) -> None:
        """A line on standard error."""
        self._lines.notice(text)

    def batch(self, report: LearnReport) -> None:
        """A batch."""
        if self._json:
            print(json.dumps(report.to_json(), ensure_ascii=False), flush=True)
        elif report.events or not self._quiet:
            print("\n".join(report_lines(report, self._shown)))
            sys.stdout.flush()


def report_lines(report: LearnReport, shown: int = _SHOWN, *, pairs: bool = True) -> list[str]:
    """A batch: what it did in one line, then each rule that it changed by name, with the pair of rows that is why.

    Without `pairs` no row is shown: logs hold no values. At least one rule is named, whatever `shown` says.
    """
    return [_summary(report), *_listed(report, max(1, shown), pairs)]


def _summary(report: LearnReport) -> str:
    at = report.detected_at.astimezone().strftime("%H:%M:%S")
    kinds = [event.event for event in report.events]
    counts = [f"rules +{kinds.count('added'):,} -{kinds.count('dropped'):,}"]
    counts += [f"{kinds.count(kind):,} {kind}" for kind in ("error", "drift") if kind in kinds]
    rejected = [f"{report.rejected:,} rejected"] if report.rejected else []
    parts = [
        f"{at} learned from batch {report.batch}",
        f"{report.changes:,} change{'s' * (report.changes != 1)}",
        *rejected,
        *counts,
        f"{report.rules:,} hold in {report.rows:,} row{'s' * (report.rows != 1)}",
        f"{report.seconds:.1f} s",
        f"at {escaped(report.position)}",
    ]
    return "  ".join(parts)


def _listed(report: LearnReport, shown: int, pairs: bool) -> Iterator[str]:
    for event in report.events[:shown]:
        yield f"  {_SIGNS.get(event.event, event.event)} {_words(event)}"
        if pairs and (reason := pair_told(event)) is not None:
            yield f"      {reason}"
    if len(report.events) > shown:
        rest = [event.event for event in report.events[shown:]]
        kinds = ", ".join(f"{rest.count(kind):,} {kind}" for kind in dict.fromkeys(rest))
        yield f"  and {len(rest):,} more: {kinds}"


def _words(event: RuleEvent) -> str:
    error = "" if event.error is None else f" (error {event.error:.2g})"
    return escaped(f"{event.rule}: {event.words or event.deny}") + error


def pair_told(about: Any) -> str | None:
    """The pair of rows that is the reason, in one line; None where there is none."""
    if about.left_key is None:
        return None
    width = _VALUES if sys.stdout.isatty() else None
    left = f"row {printable(about.left_key, None)} {printable(about.left_values or '', width)}"
    if about.right_key is None:
        return f"because of {left}"
    right = f"row {printable(about.right_key, None)} {printable(about.right_values or '', width)}"
    return f"because of {left} and {right}"
