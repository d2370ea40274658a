"""Violations that a sink holds, written out: text for people, JSON or CSV for programs.

Rows are written rule by rule, in the order of the job file, the newest first. JSON and CSV stream: rows pass through in
pieces, however many there are. The JSON form is `{"version": 1, "path",
"position", "rules": [{"name", "severity", "open", and while it is backfilled "backfilled": the share that is
done}], "violations": [{"rule", "id", "severity", "left_key", "right_key",
"batch_id", "opened_at", "left", "right"}]}`; a row of the log has `change` and `detected_at` instead of `opened_at`.
CSV has the columns of the tables.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from weever_stream.detect.identity import plain
from weever_stream.detect.texts import written
from weever_stream.sinks.batch import ADDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from rich.console import Console

    from weever_stream.rules import RuleFile
    from weever_stream.sinks.reading import Kept

__all__ = ["Found", "write_csv", "write_json", "write_text"]


@dataclass(frozen=True)
class Found:
    """What is to be written."""

    kept: Kept
    rules: RuleFile | None
    names: list[str] | None
    log: bool
    still_open: pa.Table
    """Index of all that is open under the chosen rules."""
    total: pa.Table
    """Index of what was asked for."""
    index: pa.Table
    """The part of it that is listed."""
    backfills: Mapping[str, float] = field(default_factory=dict)
    """Rules that are being backfilled, each with the share that is done: more may be found."""

    @property
    def time(self) -> str:
        """What the tables call the time of a row."""
        return "detected_at" if self.log else "opened_at"

    def counts(self) -> list[dict[str, Any]]:
        """Name, severity and number of open violations of every rule, also of those without any if a job names them."""
        severities: dict[str, str] = {}
        if self.rules is not None:
            severities = {rule.name: rule.severity for rule in self.rules.rules}
        for index in (self.total, self.still_open):
            rows = index.group_by(["rule", "severity"]).aggregate([]).to_pylist()
            severities |= {row["rule"]: row["severity"] for row in sorted(rows, key=lambda row: str(row["rule"]))}
        numbers = by_rule(self.still_open)
        shown = [name for name in severities if self.names is None or name in self.names]
        counts: list[dict[str, Any]] = [
            {"name": name, "severity": severities[name], "open": numbers.get(name, 0)} for name in shown
        ]
        for count in counts:
            if (share := self.backfills.get(count["name"])) is not None:
                count["backfilled"] = round(share, 3)
        return counts

    def rows(self) -> list[dict[str, Any]]:
        """The listed rows as dictionaries, in the order of the index."""
        return [row for piece in self.kept.fetch(self.index, from_log=self.log) for row in piece.to_pylist()]


def by_rule(index: pa.Table) -> dict[str, int]:
    """How many rows of an index each rule has."""
    return {row["rule"]: row["rule_count"] for row in index.group_by("rule").aggregate([("rule", "count")]).to_pylist()}


def write_json(found: Found, out: IO[bytes], to_terminal: bool) -> None:
    """One JSON document, a violation a line."""
    head = {"version": 1, "path": found.kept.path, "position": found.kept.position}
    rules = ",\n".join(written(count) for count in found.counts())
    out.write(f'{written(head)[:-1]},"rules":[\n{rules}\n],"violations":['.encode("utf-8", "replace"))
    comma = ""
    for piece in found.kept.fetch(found.index, from_log=found.log):
        for row in piece.to_pylist():
            out.write(f"{comma}\n{_as_json(row, found)}".encode("utf-8", "replace"))
            comma = ","
    out.write(b"\n]}\n")


def _as_json(row: dict[str, Any], found: Found) -> str:
    """A row as a JSON object, its values as the sink wrote them, digit by digit."""
    head = {
        "rule": row["rule"],
        "id": row["violation_id"],
        "severity": row["severity"],
        **({"change": row["change"], "reason": row["reason"]} if found.log else {}),
        "left_key": row["left_key"],
        "right_key": row["right_key"],
        "batch_id": row["batch_id"],
        found.time: plain(row["at"]),
    }
    return f'{written(head)[:-1]},"left":{_object(row["left_values"])},"right":{_object(row["right_values"])}}}'


def _object(text: str | None) -> str:
    if text is None:
        return "null"
    try:
        json.loads(text)
    except ValueError:
        return written(text)
    return text.replace("\n", " ")  # between its tokens, as JSON escapes those in texts


def write_csv(found: Found, out: IO[bytes], to_terminal: bool) -> None:
    """CSV with a header and the columns of the table."""
    import csv

    from weever_stream.sinks.reading import COLUMNS

    names = [name for name in COLUMNS if found.log or name not in ("change", "reason")]
    text = io.TextIOWrapper(out, "utf-8", "replace", newline="", write_through=True)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([found.time if name == "at" else name for name in names])
        for piece in found.kept.fetch(found.index, from_log=found.log):
            for row in piece.to_pylist():
                writer.writerow([plain(row[name]) if name == "at" else row[name] for name in names])
    finally:
        text.detach()


def write_text(found: Found, out: IO[bytes], to_terminal: bool) -> None:
    """For people: a line for each rule, then the newest pairs side by side."""
    from weever_stream.cli.tables import open_console

    text = io.TextIOWrapper(out, "utf-8", "replace", write_through=True)
    try:
        console = open_console(text, to_terminal=to_terminal)
        counts = found.counts()
        if counts:
            _summary(console, counts)
        _list(console, found)
        _close(console, found, counts)
    finally:
        text.detach()


def _summary(console: Console, counts: list[dict[str, Any]]) -> None:
    from rich.text import Text

    from weever_stream.cli.tables import print_table
    from weever_stream.drawing import STYLES, escaped

    rows = []
    for count in counts:
        style = STYLES.get(count["severity"], "") if count["open"] else "green"
        severity = Text(escaped(count["severity"]), style=style if count["open"] else "")
        rows.append((escaped(count["name"]), severity, Text(f"{count['open']:,}", style=style)))
    print_table(console, ("rule", "severity", "open"), rows, right=["open"])


def _list(console: Console, found: Found) -> None:
    from rich.text import Text

    from weever_stream.drawing import STYLES, draw_written_pair, escaped, value_width
    from weever_stream.rules import write_rule

    said = {} if found.rules is None else {rule.name: write_rule(rule) for rule in found.rules.rules}
    last = None
    for row in found.rows():
        if row["rule"] != last:
            last = row["rule"]
            name = Text(escaped(last), style=STYLES.get(row["severity"], ""))
            console.print(Text("\n") + name + Text(f"  {escaped(said.get(last) or row['severity'])}", style="dim"))
        mark = Text()
        if found.log:
            mark = Text("+ violated ", style="red") if row["change"] == ADDED else Text("- fixed    ", style="green")
            if row["reason"]:
                mark = Text(f"- {escaped(row['reason'].replace('_', ' '))} ", style="yellow")
        console.print(Text("  ") + mark + Text(f"{row['at']:%Y-%m-%d %H:%M:%S}Z", style="cyan"))
        console.print(draw_written_pair(row, found.rules, indent=3, width=value_width(console)))


def _close(console: Console, found: Found, counts: list[dict[str, Any]]) -> None:
    from rich.text import Text

    from weever_stream.cli.progress import backfill_text
    from weever_stream.drawing import escaped

    listed, total = by_rule(found.index), by_rule(found.total)
    for name in (count["name"] for count in counts):
        if more := total.get(name, 0) - listed.get(name, 0):
            hint = f"\n{escaped(name)}: {more:,} more; --limit lists more, --format csv all"
            console.print(Text(hint, style="dim"))
    if going_on := {count["name"]: count["backfilled"] for count in counts if "backfilled" in count}:
        names = escaped(backfill_text(going_on))
        console.print(Text(f"\n{names}: the number of open violations may not be complete", style="yellow"))
    number = found.still_open.num_rows
    violated = sum(1 for count in counts if count["open"])
    state = f"{number:,} open, {violated} of {len(counts)} rules violated" if number else "nothing is open"
    position = f", as of {escaped(found.kept.position)}" if found.kept.position else ""
    console.print(Text(f"\n{escaped(found.kept.path)}: {state}{position}"))
