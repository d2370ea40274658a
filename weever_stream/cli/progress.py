"""Lines that tell of batches: for a person on a terminal, or one JSON object each."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from weever_stream.observe import logs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.stream.progress import BatchReport

__all__ = ["BatchLines", "backfill_text"]

_RULES_SHOWN = 6


class BatchLines:
    """Tells of batches on standard output, of everything else on standard error."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, dead_letters: str | None = None) -> None:
        self._json, self._quiet, self._dead_letters = as_json, quiet, dead_letters
        self._out = Console(highlight=False, soft_wrap=True)
        self._err = Console(stderr=True, highlight=False, soft_wrap=True)

    def status(self, text: str) -> Any:
        """A spinner while something long goes on; a plain line where nobody watches."""
        if self._err.is_terminal and not logs.as_json():
            return self._err.status(text)
        self.notice(text)
        return nullcontext()

    def notice(self, text: str) -> None:
        """A line on standard error; with WEEVER_LOG_JSON=1 that holds nothing but logs."""
        if logs.as_json():
            logs.get("cli").info("notice", text)
            return
        self._err.print(f"[dim]{escape(text)}[/]")

    def warn(self, text: str) -> None:
        """A line on standard error that asks for attention."""
        if logs.as_json():
            logs.get("cli").warning("warning", text)
            return
        self._err.print(f"[bold yellow]warning:[/] {escape(text)}")

    def batch(self, report: BatchReport) -> None:
        """A batch, and where its rejected records are."""
        if self._json:
            print(json.dumps(report.to_json()), flush=True)
        elif not self._quiet or report.added or report.removed or report.rejected:
            self._out.print(_line(report))
            sys.stdout.flush()
        if report.rejected and self._dead_letters is not None:
            records = "1 record" if report.rejected == 1 else f"{report.rejected:,} records"
            self.notice(f"{records} could not be read; the dead letters in {self._dead_letters} say why")
        if report.duplicates:
            rows = "1 new row has a key" if report.duplicates == 1 else f"{report.duplicates:,} new rows have keys"
            self.warn(f"{rows} of another row: a key must be unique, or violations are missed or never resolved")


def _line(report: BatchReport) -> str:
    at = report.detected_at.astimezone().strftime("%H:%M:%S")
    parts = [
        f"[dim]{at}[/] batch {report.batch}",
        f"{report.changes:,} change{'s' if report.changes != 1 else ''}",
        f"[red]+{report.added:,}[/] [green]-{report.removed:,}[/]",
        f"open {_open(report.open)}{_unlisted(report.unlisted)}",
        f"[dim]{report.seconds:.1f} s, {report.shard_seconds:.2f} s of it in shards[/]",
        f"[dim]at {escape(report.position)}[/]",
    ]
    if report.rejected:
        parts.insert(2, f"[bold yellow]{report.rejected:,} rejected[/]")
    if report.backfilling:
        parts.append(f"[yellow]{escape(backfill_text(report.backfilling))}[/]")
    if report.behind:
        parts.append(f"[dim]behind {escape(', '.join(f'{name} {value}' for name, value in report.behind.items()))}[/]")
    return "  ".join(parts)


def backfill_text(shares: Mapping[str, float]) -> str:
    """Which rules are being backfilled, and how far."""
    return "backfilling " + ", ".join(f"{rule} {int(100 * share)} %" for rule, share in sorted(shares.items()))


def _unlisted(counts: dict[str, int]) -> str:
    """How many more there are of which only the number is known."""
    total = sum(counts.values())
    return f" [yellow]+ {total:,} not listed ({', '.join(map(escape, sorted(counts)))})[/]" if total else ""


def _open(counts: dict[str, int]) -> str:
    """How many are open: the rules with the most of them, by name."""
    total = sum(counts.values())
    most = sorted((rule for rule in counts if counts[rule]), key=lambda rule: -counts[rule])
    named = ", ".join(f"{escape(rule)} {counts[rule]:,}" for rule in most[:_RULES_SHOWN])
    more = f", {len(most) - _RULES_SHOWN} more" if len(most) > _RULES_SHOWN else ""
    return f"[bold]{total:,}[/]" + (f" ({named}{more})" if most else "")
