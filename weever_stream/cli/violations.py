"""`weever violations`: what a running job has found, read from its sink without Spark. See docs/tables.md."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.output import OutputFile, is_stdout, opened
from weever_stream.errors import DataError, RuleError, WeeverError

if TYPE_CHECKING:
    import pyarrow as pa

    from weever_stream.rules import Rule, RuleFile
    from weever_stream.sinks.reading import Kept

__all__ = ["Form", "moment", "violations"]

_SHOWN = 20
"""Violations that text shows per rule."""
_READABLE = ("delta", "files")


class Form(str, Enum):
    """How the outcome is written."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def violations(
    job: Annotated[
        str, typer.Argument(metavar="JOB_OR_PATH", help="The job's file, or the path of its sink.", show_default=False)
    ],
    log: Annotated[bool, typer.Option("--log/--open", help="Every addition and removal, or what is open now.")] = False,
    rule: Annotated[list[str] | None, typer.Option(help="Only this rule; may be repeated.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only from this time on: 2026-03-01, 2026-03-01T12:00Z, or '2 hours' ago.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"The newest of each rule, at most so many. Text: {_SHOWN}, else all.", show_default=False
        ),
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="Output format.")] = Form.TEXT,
    output: OutputFile = None,
) -> None:
    """Show the open violations of a job, or their history.

    Exits with 0 if nothing is open, 1 if violations of severity error or critical are, 2 if only of warning or info, 3
    if the sink could not be read, and 4 if the outcome could not be written. Only the chosen rules count.
    """
    from weever_stream.cli.kept import Found, write_csv, write_json, write_text
    from weever_stream.sinks.reading import newest, read_sink, selected, sort_newest_first

    rules, path = _job(job)
    checked = _checked(rules) if rules is not None else None  # first: the sink may be further by then, not less far
    kept = read_sink(path)
    if checked is not None and checked.batch >= kept.batch:
        kept = replace(kept, position=checked.position)
    if rules is not None and checked is not None:
        rules = replace(rules, rules=checked.rules)
    names = _chosen(rule, rules, kept)
    still_open = selected(kept.open_index(), names, None)
    index = selected(kept.log_index() if log else still_open, names, moment(since))
    total = index
    if limit is None and form is Form.TEXT:
        limit = _SHOWN
    if limit is not None:
        index = newest(index, limit)
    listed = [one.name for one in rules.rules] if rules is not None else []
    backfills = {} if checked is None else checked.backfills
    found = Found(kept, rules, names, log, still_open, total, sort_newest_first(index, listed), backfills)
    write = {Form.TEXT: write_text, Form.JSON: write_json, Form.CSV: write_csv}[form]
    with opened(output) as out:
        write(found, out, is_stdout(output))
    raise typer.Exit(_exit_code(still_open))


def _job(job: str) -> tuple[RuleFile | None, str]:
    """The rules, if a job's file is named, and the path of the sink to read."""
    if Path(job).suffix.lower() not in (".yaml", ".yml") and not Path(job).is_file():
        return None, job
    from weever_stream.rules import read_rules

    rules = read_rules(job)
    at = next((at for kind in _READABLE for at, sink in enumerate(rules.sinks) if sink.get("kind") == kind), None)
    if at is None:
        raise DataError(
            f"{job} has no sink that can be read: it needs one of kind delta or files",
            hint="add {kind: delta, path: …} under `sinks`; a topic is read by its own consumers",
        )
    # Only what this sink needs is filled in: a password of another one may well be missing here.
    alone = tuple(sink if place == at else {} for place, sink in enumerate(rules.sinks))
    resolved = replace(rules, source=None, alerts=(), state=None, sinks=alone).resolve(os.environ)
    path = _text(resolved.sinks[at].get("path"))
    if not path:
        raise RuleError(f"the {rules.sinks[at]['kind']} sink has no `path`")
    return rules, path


@dataclass(frozen=True)
class _Checked:
    """How far a job is, from the notes beside its checkpoint."""

    position: str
    """Up to where the source is checked: sinks are only written when something changes."""
    batch: int
    backfills: dict[str, float]
    """Rules that are being backfilled, each with the share that is done."""
    rules: tuple[Rule, ...]
    """Those of the job file, with t and s as their rows are written."""


def _checked(rules: RuleFile) -> _Checked | None:
    """Nothing where the checkpoint cannot be read here, or where there is none yet."""
    from weever_stream.job.job import state_of
    from weever_stream.state.notes import Notes
    from weever_stream.stream.places import notes_of_state
    from weever_stream.stream.progress import PROGRESS, backfills_of
    from weever_stream.stream.saved import read_noted

    try:
        if (state := state_of(rules, os.environ)) is None:
            return None
        notes = Notes(notes_of_state(state))
        done, noted = notes.read(PROGRESS), read_noted(notes, state.checkpoint)
    except (WeeverError, OSError):
        return None
    if done is None:
        return None
    written = rules.rules if noted is None else noted.oriented(rules.rules)
    return _Checked(str(done["position"]), int(done["batch"]), backfills_of(noted, done), written)


def _text(value: Any) -> str | None:
    from weever_stream.rules.references import Secret

    value = value.reveal() if isinstance(value, Secret) else value
    return value if isinstance(value, str) else None


def _chosen(wanted: list[str] | None, rules: RuleFile | None, kept: Kept) -> list[str] | None:
    """The rules to show; None for all. A name that neither the job nor the sink knows is a mistake."""
    if not wanted:
        return None
    if rules is not None:
        return [rule.name for rule in rules.select(wanted).rules]
    import pyarrow.compute as pc

    index = kept.open_index() if kept.log_rows is None else kept.log_index()
    known = pc.unique(index["rule"]).to_pylist()
    found = [name for name in known if any(name == one or name.startswith(f"{one}.") for one in wanted)]
    for one in wanted:
        if not any(name == one or name.startswith(f"{one}.") for name in found):
            from weever_stream.errors import did_you_mean

            hint = (
                did_you_mean(one, known) or "a rule that was never violated is not in the tables: name the job's file"
            )
            raise DataError(f"{kept.path} knows no rule {one}", hint=hint)
    return found


def moment(text: str | None) -> datetime | None:
    """A time, or a length of time before now. Times without a zone are UTC, as the tables' are."""
    if text is None:
        return None
    from weever_stream.job.options import duration

    try:
        return datetime.now(timezone.utc) - timedelta(seconds=duration(text))
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text.strip().replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError:
        raise RuleError(
            f"--since {json.dumps(text)} is no time", hint="write 2026-03-01, 2026-03-01T12:00:00Z or '2 hours'"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def _exit_code(still_open: pa.Table) -> int:
    import pyarrow.compute as pc

    from weever_stream.check.report import exit_code_of

    return exit_code_of({*pc.unique(still_open["severity"]).to_pylist()})
