"""`weever rules drift`: how often each rule of a job is broken, how that has changed, and which rules to look at.

    weever rules drift job.yaml

For each rule: what is open, how many of 1,000 changes broke it in the long run and lately, a line of that over the
latest changes, and since when it drifts (see `learn.drift`). The rules that drift come first. Without Spark, from the
note of the last batch; the job may be running. Exits with 6 if a rule drifts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.exit_codes import ExitCode
from weever_stream.cli.output import Format
from weever_stream.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weever_stream.learn.drift import Trend

__all__ = ["drift", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"


def drift(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    format: Annotated[Format, typer.Option(help="text or json")] = Format.text,
) -> int:
    """See how often each rule is broken, how that has changed, and which rules may be true no more."""
    from weever_stream.job.job import read_job
    from weever_stream.state.notes import Notes
    from weever_stream.stream.places import notes_of
    from weever_stream.stream.progress import PROGRESS, trends_of

    asked = read_job(job, os.environ)
    progress = Notes(notes_of(asked)).read(PROGRESS)
    if progress is None:
        raise StateError(
            f"nothing is known of {asked.file.table}: no batch is done under {asked.state.checkpoint}",
            hint=f"start the job: weever run {job}",
        )
    trends = sorted(trends_of(progress).trends(), key=lambda one: one.drifting is None)
    if format is Format.json:
        print(json.dumps(_as_json(asked.file.table, progress, trends), ensure_ascii=False, indent=1))
    else:
        _show(progress, trends)
    return ExitCode.DRIFT if any(one.drifting for one in trends) else ExitCode.OK


def _open(progress: Mapping[str, Any], rule: str) -> int:
    return int(progress["open"].get(rule, 0) + progress.get("unlisted", {}).get(rule, 0))


def _as_json(table: str, progress: Mapping[str, Any], trends: Sequence[Trend]) -> dict[str, Any]:
    return {
        "version": 1,
        "table": table,
        "batch": progress["batch"],
        "position": progress["position"],
        "at": progress["detected_at"],
        "rules": [
            {
                "name": one.rule,
                "open": _open(progress, one.rule),
                "changes": one.changes,
                "baseline": one.baseline,
                "recent": one.recent,
                "bucket": one.width,
                "trend": list(one.points),
                "drifting": one.drifting and one.drifting.as_json(),
            }
            for one in trends
        ],
    }


def _show(progress: Mapping[str, Any], trends: Sequence[Trend]) -> None:
    from rich.text import Text

    from weever_stream.cli.tables import open_console, print_table
    from weever_stream.drawing import escaped

    console = open_console()
    rows = []
    for one in trends:
        style = "" if one.drifting is None else "red"
        rows.append(
            (
                Text(escaped(one.rule), style=style),
                f"{_open(progress, one.rule):,}",
                _rate(one.baseline),
                Text(_rate(one.recent), style=style),
                Text(sparkline(one.points), style=style),
            )
        )
    print_table(console, ("rule", "open", "usual", "lately", "trend"), rows, right=["open", "usual", "lately"])
    if trends:
        bar = f"a bar is {trends[0].width:,} changes"
        console.print(Text(f"\nusual, lately: rows that break the rule, of 1,000 changes; {bar}", style="dim"))
    drifting = [one.drifting for one in trends if one.drifting is not None]
    for notice in drifting:
        since = notice.since[:19].replace("T", " ")
        place = escaped(notice.since_position)
        console.print(Text(f"{escaped(notice.rule)} drifts since {since}, after {place}", style="red"))
    console.print(f"{len(drifting)} of {len(trends)} rules drift, as of {escaped(progress['position'])}", markup=False)


def _rate(per_change: float) -> str:
    """Of 1,000 changes, in as many digits as say something."""
    rate = 1000 * per_change
    return "0" if not rate else f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}" if rate >= 0.05 else "<0.1"


def sparkline(points: Sequence[float | None]) -> str:
    """Numbers as bars, the highest at full height; a dot for 0, a blank where there is none.

    >>> sparkline([None, 0.0, 0.0, 1.0, 8.0, 4.0])
    ' ··▂█▅'
    """
    top = max((point for point in points if point is not None), default=0.0)
    bars = (
        None if not point else _BARS[min(len(_BARS) - 1, round(point / top * (len(_BARS) - 1)))] for point in points
    )
    return "".join(bar or (" " if point is None else "·") for bar, point in zip(bars, points, strict=True))
