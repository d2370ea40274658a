"""`weever alerts`: test targets, list alerts and their history, silence alerts for a while.

Needs no Spark; the job may be running. A running job follows a silence within ten seconds. `weever alerts test` exits
with 4 if a test alert was not delivered.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.exit_codes import ExitCode
from weever_stream.cli.output import Format
from weever_stream.cli.tables import open_console, print_table
from weever_stream.errors import RuleError, StateError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from weever_stream.job.alerts import Silence
    from weever_stream.job.job import Job
    from weever_stream.state.notes import Notes

__all__ = ["list_history", "list_open", "send_test", "silence", "unsilence"]


JobFile = Annotated[Path, typer.Argument(help="The job file.")]
Targets = Annotated[list[str] | None, typer.Option("--target", help="Only this target; may be repeated.")]
Rules = Annotated[list[str] | None, typer.Option("--rule", help="Only this rule; may be repeated.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="Output format.")]


def send_test(job: JobFile, targets: Targets = None, form: OutputFormat = Format.text) -> int:
    """Send a test alert to each target, opened and then resolved."""
    asked = _read(job, targets)
    return _test(open_console(), asked, targets, as_json=form is Format.json)


def list_open(job: JobFile, targets: Targets = None, rules: Rules = None, form: OutputFormat = Format.text) -> int:
    """List the alerts that are open or waiting, by target, and the silences."""
    asked = _read(job, targets, rules)
    return _list(open_console(), asked, _notes(asked), targets, rules, as_json=form is Format.json)


def list_history(
    job: JobFile,
    targets: Targets = None,
    rules: Rules = None,
    since: Annotated[
        str | None, typer.Option(help='Only events after this time: "2 hours" ago, or 2026-03-01T12:00Z.')
    ] = None,
    form: OutputFormat = Format.text,
) -> int:
    """List what was sent, suppressed or failed, and why."""
    notes = _notes(_read(job, targets, rules))
    return _history(open_console(), notes, targets, rules, since, as_json=form is Format.json)


def silence(
    job: JobFile,
    length: Annotated[str, typer.Option("--for", help='Length of the silence: "2 hours".', show_default=False)],
    rules: Rules = None,
    why: Annotated[str, typer.Option(help="Reason, shown in the history.")] = "",
) -> int:
    """Send no alerts for a while, for all rules or only some."""
    return _silence(open_console(), _notes(_read(job, rules=rules)), rules, length, why)


def unsilence(job: JobFile, rules: Rules = None) -> int:
    """End silences that were set by hand, for all rules or only some."""
    asked = _read(job, rules=rules)
    return _unsilence(open_console(), _notes(asked), rules, [one.name for one in asked.file.rules])


def _read(path: Path, targets: list[str] | None = None, rules: list[str] | None = None) -> Job:
    from weever_stream.job.job import read_job

    job = read_job(path, os.environ)
    _known("target", targets, [one.name for one in job.alerts])
    _known("rule", rules, [one.name for one in job.file.rules])
    return job


def _notes(job: Job) -> Notes:
    from weever_stream.state.notes import Notes
    from weever_stream.stream.places import notes_of

    return Notes(notes_of(job))


def _known(what: str, named: list[str] | None, known: list[str]) -> None:
    for name in named or ():
        if not any(one == name or one.startswith(name + ".") for one in known):
            listed = f"there are {', '.join(known)}" if known else f"the job file has no {what}"
            raise RuleError(f"there is no {what} {name}", hint=did_you_mean(name, known) or listed)


def _chosen(name: str, wanted: list[str] | None) -> bool:
    return not wanted or any(name == one or name.startswith(one + ".") for one in wanted)


# Trials


def _test(console: Console, job: Job, wanted: list[str] | None, *, as_json: bool) -> int:
    from weever_stream.alerts.notice import DeliveryError
    from weever_stream.alerts.targets import TargetError, open_target

    if not job.alerts:
        raise RuleError(f"{job.file.path} has no `alerts`", hint="docs/alerts.md shows how they are written")
    routes = job.routes
    failed, told = 0, []
    for options in job.alerts:
        if not _chosen(options.name, wanted):
            continue
        heard = sum(route.target == options.name for route in routes)
        about: dict[str, Any] = {"target": options.name, "kind": options.kind, "rules": heard, "arrived": True}
        try:
            _try(open_target(options), job)
        except (DeliveryError, TargetError) as error:
            reason = error.reason if isinstance(error, DeliveryError) else f"{error.message} (hint: {error.hint})"
            about |= {"arrived": False, "reason": reason}
            failed += 1
        told.append(about)
    if as_json:
        typer.echo(json.dumps(told, indent=1))
        return ExitCode.NOT_DELIVERED if failed else ExitCode.OK
    for about in told:
        outcome = "arrived" if about["arrived"] else f"did not arrive: {about['reason']}"
        heard = about["rules"]
        rules = f"hears of {heard} rule{'s' * (heard != 1)}" if heard else "no rule is told to it"
        console.print(f"{about['target']} ({about['kind']}): {outcome}; {rules}", markup=False)
    return ExitCode.NOT_DELIVERED if failed else ExitCode.OK


def _try(target: Any, job: Job) -> None:
    """Opens an alert and resolves it."""
    from weever_stream.alerts.desk import dedup_key
    from weever_stream.alerts.notice import Notice

    now = datetime.now(timezone.utc)
    try:
        memory: dict[str, str] = {}
        for what, n in (("open", 1), ("resolve", 0)):
            key = dedup_key(job.name, job.file.table, ("trial", (), f"{now:%Y%m%d%H%M%S}"))
            notice = Notice(what, key, job.file.table, "trial", "info", n, now, now, job=job.name, trial=True)  # type: ignore[arg-type]
            memory |= target.send(notice, memory).memory
    finally:
        target.close()


# What was told


def _list(
    console: Console, job: Job, notes: Notes, targets: list[str] | None, rules: list[str] | None, *, as_json: bool
) -> int:
    from weever_stream.alerts.desk import Desk
    from weever_stream.alerts.dispatch import ALERTS, silences_of

    desk = Desk(job.file.table, job.routes, notes.read(ALERTS), job=job.name)
    found: list[dict[str, Any]] = [
        {
            "target": target,
            "rule": place[0],
            "group": place[2],
            "open": desk.subjects.places[place].open if place in desk.subjects.places else 0,
            "state": "open" if alert.opened_at else "failing" if alert.tries else alert.hushed or "waiting",
            "since": (alert.opened_at or alert.pending or alert.resolved_at),
        }
        for (target, place), alert in sorted(desk.alerts.items())
        if _chosen(target, targets) and _chosen(place[0], rules) and (alert.opened_at or alert.pending)
    ]
    now = datetime.now(timezone.utc)
    silences = [one for one in silences_of(notes) if one.until > now and _concerns(one, job, rules)]
    if as_json:
        told = [{**one, "since": one["since"] and one["since"].isoformat()} for one in found]
        typer.echo(json.dumps({"alerts": told, "silences": [_silenced(one) for one in silences]}, indent=1))
        return 0
    if not found:
        console.print("no alert is open")
    else:
        _print(console, ("target", "rule", "group", "open", "state", "since"), found)
    for one in silences:
        console.print(f"silenced: {_silenced(one)}", markup=False)
    return 0


def _concerns(silence: Silence, job: Job, wanted: list[str] | None) -> bool:
    """Whether a silence is of any of the rules that are asked for."""
    from weever_stream.job.alerts import is_named

    named = [rule.name for rule in job.file.rules if _chosen(rule.name, wanted)]
    return not wanted or not silence.rules or any(is_named(rule, one) for rule in named for one in silence.rules)


def _history(
    console: Console,
    notes: Notes,
    targets: list[str] | None,
    rules: list[str] | None,
    since: str | None,
    *,
    as_json: bool,
) -> int:
    from weever_stream.alerts.dispatch import ALERTS
    from weever_stream.cli.violations import moment

    start = moment(since)
    events = [
        event
        for event in (notes.read(ALERTS) or {}).get("history", ())
        if _chosen(event["target"], targets)
        and _chosen(event["rule"], rules)
        and (start is None or datetime.fromisoformat(event["at"]) >= start)
    ]
    if as_json:
        typer.echo(json.dumps(events, indent=1))
    elif not events:
        console.print("nothing was told")
    else:
        _print(console, ("at", "event", "target", "rule", "group", "open", "why"), events)
    return 0


def _print(console: Console, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    from weever_stream.drawing import escaped

    cells = [[escaped(_cell(row.get(name))) for name in columns] for row in rows]
    print_table(console, columns, cells, right=["open"])


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        value = value.isoformat()
    text = "" if value is None else str(value)
    return text[:19].replace("T", " ") if text[4:5] == "-" and text[10:11] == "T" else text


# Silences


def _silence(console: Console, notes: Notes, rules: list[str] | None, length: str, why: str) -> int:
    from weever_stream.alerts.dispatch import SILENCES, silences_of, written_silences
    from weever_stream.job.alerts import Silence
    from weever_stream.job.options import duration

    try:
        seconds = duration(length)
    except ValueError as error:
        raise RuleError(f"--for: {error}") from None
    if len(why) > 500:
        raise RuleError("--why is longer than 500 characters")
    now = datetime.now(timezone.utc)
    fresh = Silence.model_validate({"rules": rules or [], "until": now + timedelta(seconds=seconds), "why": why})
    kept = [one for one in silences_of(notes) if one.until > now]
    notes.write(SILENCES, written_silences([*kept, fresh]))
    console.print(f"silenced: {_silenced(fresh)}", markup=False)
    return 0


def _unsilence(console: Console, notes: Notes, rules: list[str] | None, known: list[str]) -> int:
    from weever_stream.alerts.dispatch import SILENCES, silences_of, written_silences

    try:
        now = datetime.now(timezone.utc)
        silences = [one for one in silences_of(notes) if one.until > now]  # the others have ended by themselves
    except StateError:  # unreadable: all of them go
        silences, rules = [], None
    left = [one.without(rules, known) if rules else None for one in silences]
    notes.write(SILENCES, written_silences([one for one in left if one is not None]))
    ended = sum(one is None for one in left)
    if left == silences:
        console.print("nothing was silenced")
    if ended:
        console.print(f"{ended} silence{'s' * (ended != 1)} ended")
    for before, after in zip(silences, left, strict=True):
        if after is not None and after is not before:
            console.print(f"still silenced: {_silenced(after)}", markup=False)
    return 0


def _silenced(silence: Any) -> str:
    rules = ", ".join(silence.rules) or "all rules"
    return f"{rules} until {silence.until:%Y-%m-%d %H:%M:%S} UTC" + (f": {silence.why}" if silence.why else "")
