"""A block of lines on the terminal for each batch: what is violated from now on, what is fixed, what is open.

At most `rows` of each kind are fetched, however many there are; the others are counted. Colours on a terminal, plain
lines in a pipe. A batch that is written again is printed again.
"""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as fn
from rich.console import Console
from rich.text import Text

from weever_stream.drawing import STYLES, draw_written_pair, escaped, printable, value_width
from weever_stream.sinks.batch import ADDED, REMOVED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from pyspark.sql import Row

    from weever_stream.job.options import ConsoleSink
    from weever_stream.rules import RuleFile
    from weever_stream.sinks.batch import Batch

__all__ = ["Terminal"]

_SHOWN = (
    "rule", "rule_fingerprint", "severity", "change", "left_key", "right_key", "left_values", "right_values",
)  # fmt: skip
_MARKS = {REMOVED: ("- fixed   ", "green"), ADDED: ("+ violated", "red")}


class Terminal:
    """The sink of kind `console`."""

    def __init__(self, options: ConsoleSink, rules: RuleFile | None = None, out: TextIO | None = None) -> None:
        self._rows = options.rows
        self._rules = rules
        # Lines are never wrapped or cut to the terminal's width: a pipe has none, and people search in them.
        self._console = Console(file=out, highlight=False, soft_wrap=True)

    def write(self, batch: Batch) -> None:
        """Prints a batch, if there is anything in it."""
        if not (batch.added or batch.removed):
            return
        at = batch.detected_at
        at = at.astimezone(timezone.utc) if at.tzinfo else at
        self._console.print(
            Text(f"{at:%Y-%m-%d %H:%M:%S}Z", style="cyan")
            + Text(f"  batch {batch.id}  +{batch.added:,} -{batch.removed:,}", style="bold")
            + Text(f"  {escaped(batch.position)}", style="dim")
        )
        rows = self._fetch(batch)
        for change, count in ((REMOVED, batch.removed), (ADDED, batch.added)):
            self._show(change, [row for row in rows if row["change"] == change][: self._rows], count)
        self._console.print(Text(f"  open: {_counts(batch.open)}", style="dim"))

    def _fetch(self, batch: Batch) -> list[Row]:
        """The rows that are shown, in a fixed order, in one pass."""
        order, deltas = ("rule", "violation_id"), batch.deltas
        if not (batch.added and batch.removed) or batch.added + batch.removed <= 2 * self._rows:
            return deltas.orderBy(*order).limit(self._rows * 2).select(*_SHOWN).collect()
        # Spark keeps only the first rows of each kind before it moves any: no frame is shuffled as a whole.
        place = fn.row_number().over(Window.partitionBy("change").orderBy(*order))
        first = deltas.withColumn("_place", place).where(fn.col("_place") <= self._rows)
        return sorted(first.select(*order, *_SHOWN[1:]).collect(), key=lambda row: (row["rule"], row["violation_id"]))

    def _show(self, change: str, rows: list[Row], count: int) -> None:
        mark, style = _MARKS[change]
        for row in rows:
            rule = Text(escaped(row["rule"]), style="bold")
            severity = Text(f"  {printable(row['severity'])}", style=STYLES.get(row["severity"], ""))
            self._console.print(Text("  ") + Text(mark, style=style) + Text(" ") + rule + severity)
            pair = draw_written_pair(row.asDict(), self._rules, indent=12, width=value_width(self._console))
            self._console.print(pair)
        if count > len(rows):
            self._console.print(Text("  ") + Text(mark, style=style) + Text(f" … and {count - len(rows):,} more"))


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{escaped(rule)} {count:,}" for rule, count in counts.items()) or "0"
