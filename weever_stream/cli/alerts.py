"""`weever alerts`: see that alerts arrive, what was told, what is open, and keep quiet for a while.

    weever alerts test job.yaml [--target ops]            a trial to each target: opened, then resolved
    weever alerts list job.yaml                           what each target has been told and not yet resolved
    weever alerts history job.yaml [--since "1 day"]      what was sent, what was suppressed, what failed, and why
    weever alerts silence job.yaml --for "2 hours" [--rule zip_determines_city] [--why "migration"]
    weever alerts unsilence job.yaml [--rule R]           ends silences that were set by hand, all or of a rule

Without Spark; the job may be running. Silences are heeded within ten seconds. Exit codes: 0 done, 3 could not look, 4 a
trial did not arrive.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.output import Format
from weever_stream.errors import RuleError, StateError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from weever_stream.job.job import Job
    from weever_stream.state.notes import Notes

__all__ = ["alerts"]


class Action(str, Enum):
    """What to do."""

    test = "test"
    list = "list"
    history = "history"
    silence = "silence"
    unsilence = "unsilence"


def alerts(
    action: Annotated[Action, typer.Argument(help="test, list, history, silence or unsilence")],
    job: Annotated[Path, typer.Argument(help="The job file.")],
    target: Annotated[list[str] | None, typer.Option(help="Only this target; may be repeated.")] = None,
    rule: Annotated[list[str] | None, typer.Option(help="Only this rule; may be repeated.")] = None,
    since: Annotated[str | None, typer.Option(help='history: "2 hours", or a time such as 2026-03-01T12:00Z.')] = None,
    lasting: Annotated[str | None, typer.Option("--for", help='silence: how long, "2 hours".')] = None,
    why: Annotated[str, typer.Option(help="silence: the reason, shown in the history.")] = "",
    format: Annotated[Format, typer.Option(help="text or json")] = Format.text,
) -> int:
    """Try alerts out (test), see them (list, history), keep quiet for a while (silence, unsilence)."""
    from rich.console import Console

    from weever_stream.job.job import read_job
    from weever_stream.state.notes import Notes
    from weever_stream.stream.places import notes_of

    asked = read_job(job, os.environ)
    _refuse_others(action, {"--target": target, "--rule": rule, "--since": since, "--for": lasting, "--why": why})
    _known("target", target, [one.name for one in asked.alerts])
    _known("rule", rule, [one.name for one in asked.file.rules])
    console = Console(highlight=False, soft_wrap=True)
    as_json = format is Format.json
    if action is Action.test:
        return _test(console, asked, target, as_json=as_json)
    notes = Notes(notes_of(asked))
    if action is Action.silence:
        return _silence(console, notes, rule, lasting, why)
    if action is Action.unsilence:
        return _unsilence(console, notes, rule)
    if action is Action.list:
        return _list(console, asked, notes, target, rule, as_json=as_json)
    return _history(console, notes, target, rule, since, as_json=as_json)


_TAKES = {
    Action.test: {"--target"},
    Action.list: {"--target", "--rule"},
    Action.history: {"--target", "--rule", "--since"},
    Action.silence: {"--rule", "--for", "--why"},
    Action.unsilence: {"--rule"},
}


def _refuse_others(action: Action, given: dict[str, Any]) -> None:
    """What an action does not heed it refuses: who writes it believes that it is heeded."""
    for option, value in given.items():
        if value and option not in _TAKES[action]:
            takes = ", ".join(sorted(_TAKES[action]))
            raise RuleError(f"weever alerts {action.value} takes no {option}", hint=f"it takes {takes}")


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
            _try(open_target(options), job.file.table)
        except (DeliveryError, TargetError) as error:
            reason = error.reason if isinstance(error, DeliveryError) else error.message
            about |= {"arrived": False, "reason": reason}
            failed += 1
        told.append(about)
    if as_json:
        typer.echo(json.dumps(told, indent=1))
        return 4 if failed else 0
    for about in told:
        outcome = "arrived" if about["arrived"] else f"did not arrive: {about['reason']}"
        heard = about["rules"]
        rules = f"hears of {heard} rule{'s' * (heard != 1)}" if heard else "no rule is told to it"
        console.print(f"{about['target']} ({about['kind']}): {outcome}; {rules}", markup=False)
    return 4 if failed else 0


def _try(target: Any, table: str) -> None:
    """Opens an alert and resolves it."""
    from weever_stream.alerts.notice import Notice

    now = datetime.now(timezone.utc)
    try:
        memory: dict[str, str] = {}
        for what, n in (("open", 1), ("resolve", 0)):
            key = f"weever/{table}/trial/{now:%Y%m%d%H%M%S}"
            notice = Notice(what, key, table, "trial", "info", n, now, now, trial=True)  # type: ignore[arg-type]
            memory |= target.send(notice, memory).memory
    finally:
        target.close()


# What was told


def _list(
    console: Console, job: Job, notes: Notes, targets: list[str] | None, rules: list[str] | None, *, as_json: bool
) -> int:
    from weever_stream.alerts.desk import Desk
    from weever_stream.alerts.dispatch import ALERTS, silences_of

    desk = Desk(job.file.table, job.routes, notes.read(ALERTS))
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
    silences = silences_of(notes)
    if as_json:
        told = [{**one, "since": one["since"] and one["since"].isoformat()} for one in found]
        typer.echo(json.dumps({"alerts": told, "silences": [_silenced(one) for one in silences]}, indent=1))
        return 0
    if not found:
        console.print("no alert is open")
    else:
        console.print(_table(("target", "rule", "group", "open", "state", "since"), found))
    for one in silences:
        console.print(f"silenced: {_silenced(one)}", markup=False)
    return 0


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
        console.print(_table(("at", "event", "target", "rule", "group", "open", "why"), events))
    return 0


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name == "open" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(name))) for name in columns))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        value = value.isoformat()
    text = "" if value is None else str(value)
    return text[:19].replace("T", " ") if text[4:5] == "-" and text[10:11] == "T" else text


# Silences


def _silence(console: Console, notes: Notes, rules: list[str] | None, lasting: str | None, why: str) -> int:
    from weever_stream.alerts.dispatch import SILENCES, silences_of, written_silences
    from weever_stream.job.alerts import Silence
    from weever_stream.job.options import duration

    try:
        seconds = duration(lasting or "")
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


def _unsilence(console: Console, notes: Notes, rules: list[str] | None) -> int:
    from weever_stream.alerts.dispatch import SILENCES, silences_of, written_silences

    try:
        silences = silences_of(notes)
    except StateError:  # unreadable: all of them go
        silences, rules = [], None
    kept = [one for one in silences if rules and not set(rules) & set(one.rules)]
    notes.write(SILENCES, written_silences(kept))
    ended = len(silences) - len(kept)
    console.print(f"{ended} silence{'s' * (ended != 1)} ended" if ended else "nothing was silenced")
    return 0


def _silenced(silence: Any) -> str:
    rules = ", ".join(silence.rules) or "all rules"
    return f"{rules} until {silence.until:%Y-%m-%d %H:%M:%S} UTC" + (f": {silence.why}" if silence.why else "")
