"""`weever rules review`: what was learned of a table, against the rules in force. No Spark; the job may be running.

    weever rules review job.yaml                       at a terminal: each proposal is adopted, rejected or skipped
    weever rules review job.yaml --list                what is proposed, and rules in force that no longer hold
    weever rules review job.yaml --adopt zip_determines_city --reject age_is_unique

Adopting writes the rule into the job file, behind the last one, and touches nothing else in it; the job takes it up at
its next start. Nothing is ever changed without being asked for. Exit codes: 0 done, 3 could not do what was asked.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.output import Format
from weever_stream.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weever_stream.job.job import Job
    from weever_stream.learn.decisions import Review
    from weever_stream.learn.holding import Held, Moment
    from weever_stream.learn.proposals import Broken, Proposal

__all__ = ["review"]

_TOP = 20
_REFINED = 3


def review(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    adopt: Annotated[
        list[str] | None, typer.Option(help="Write this rule into the job file; may be repeated.", show_default=False)
    ] = None,
    reject: Annotated[
        list[str] | None, typer.Option(help="Do not propose this rule again; may be repeated.", show_default=False)
    ] = None,
    reconsider: Annotated[
        list[str] | None, typer.Option(help="Propose a rejected rule again; may be repeated.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Only show what is proposed.")] = False,
    top: Annotated[int, typer.Option(min=0, help="Show the best so many; 0 is all.")] = _TOP,
    format: Annotated[Format, typer.Option(help="text or json")] = Format.text,
) -> int:
    """Review learned rules: adopt them into the job file, reject them, see which rules in force no longer hold."""
    asked_for = adopt or reject or reconsider
    if listed and asked_for:
        raise RuleError("--list only shows: it does not go with --adopt, --reject or --reconsider")
    table = _Table(job)
    as_json = format is Format.json
    tell = _silent if as_json else print
    adopted = [table.adopt(name, tell) for name in adopt or ()]
    for name in reject or ():
        table.reject(name, tell)
    for name in reconsider or ():
        table.reconsider(name, tell)
    if as_json:
        print(json.dumps(table.review().to_json(), ensure_ascii=False, indent=1))
        return 0
    if listed or not asked_for:
        found = table.review()
        if not listed and sys.stdin.isatty() and sys.stdout.isatty():
            adopted += _asked(table, found, top)
        else:
            print("\n".join(_lines(found, top)))
    if adopted:
        print(f"next: weever plan {job} shows what that does, weever run {job} --rule-changes allow does it")
    return 0


class _Table:
    """A job file and what was learned for it. The file is read for every question: somebody may be writing it."""

    def __init__(self, path: Path) -> None:
        from weever_stream.state.notes import Notes
        from weever_stream.stream.places import learn_notes_of

        self.path = path
        asked = self._job()
        self.notes = Notes(learn_notes_of(asked))

    def _job(self) -> Job:
        from weever_stream.job.job import read_job

        return read_job(self.path, os.environ)

    def review(self) -> Review:
        """What there is to look at now."""
        from weever_stream.learn.decisions import review_of
        from weever_stream.stream.places import learn_checkpoint

        asked = self._job()
        return review_of(self.notes, asked.file.rules, learn_checkpoint(asked))

    def adopt(self, name: str, tell: Callable[[str], object]) -> str:
        """Puts a rule into the file. Where that cannot be done, its lines are shown, to be put in by hand."""
        from weever_stream.learn.decisions import Decisions, adopt
        from weever_stream.rules.adding import snippet

        held = self.review().held(name)
        try:
            adopt(self.path, held.rule())
        except RuleError:
            tell(snippet(held.rule()))
            raise
        Decisions.read(self.notes).adopting(held, _now()).write(self.notes)
        tell(f"{held.name} is in {self.path} now")
        return held.name

    def reject(self, name: str, tell: Callable[[str], object]) -> None:
        """Remembers that nobody wants a rule."""
        from weever_stream.learn.decisions import Decisions

        held = self.review().held(name)
        Decisions.read(self.notes).rejecting(held, _now()).write(self.notes)
        tell(f"{held.name} is rejected: it is not proposed again")

    def reconsider(self, name: str, tell: Callable[[str], object]) -> None:
        """Takes a rejection back."""
        from weever_stream.learn.decisions import Decisions

        Decisions.read(self.notes).reconsidering(name).write(self.notes)
        tell(f"{name} may be proposed again")


def _silent(text: str) -> None:
    """Says nothing."""


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _asked(table: _Table, found: Review, top: int) -> list[str]:
    """Asks for a decision on each proposal. The names of those that were adopted."""
    print("\n".join(_lines(found, 0, proposals=False)))
    adopted = []
    shown = found.proposals[:top] if top else found.proposals
    for number, one in enumerate(shown, 1):
        print("\n".join(["", *_proposal(one, number)]))
        answer, question = "", f"{number} of {len(shown)}: adopt, reject, skip or quit? [a/r/s/q]"
        while answer not in ("a", "r", "s", "q"):
            answer = str(typer.prompt(question, "s", show_default=False)).lower()[:1]
        if answer == "q":
            break
        try:
            if answer == "a":
                adopted.append(table.adopt(one.held.name, print))
            elif answer == "r":
                table.reject(one.held.name, print)
        except RuleError as error:
            print(error.render())
    return adopted


def _lines(found: Review, top: int, *, proposals: bool = True) -> Iterator[str]:
    from weever_stream.drawing import escaped

    holding = found.holding
    rows = f"{holding.rows:,} row{'s' * (holding.rows != 1)}"
    position = escaped(holding.at.position)
    yield f"{escaped(holding.table)}: {len(holding.rules):,} minimal rules hold in {rows}, at {position}"
    if found.broken:
        yield ""
        yield "In force, and no longer true of the table:"
        for one in found.broken:
            yield from _broken(one)
    if not found.proposals:
        yield ""
        yield "Nothing is proposed: what holds is in force, follows from it, or was rejected."
        return
    if proposals:
        shown = found.proposals[:top] if top else found.proposals
        best = f", the best {len(shown)}" if len(shown) < len(found.proposals) else ""
        yield ""
        yield f"Proposed: {len(found.proposals):,}{best}"
        for number, proposal in enumerate(shown, 1):
            yield from _proposal(proposal, number)


def _proposal(one: Proposal, number: int) -> Iterator[str]:
    from weever_stream.drawing import escaped

    held: Held = one.held
    yield escaped(f"{number:3}. {held.words or held.name}")
    yield escaped(f"     {held.name}: {held.deny}")
    support = "" if held.support is None else f", about {held.support:,} pairs test it"
    yield f"     holds since {_moment(held.since)}{support}"


def _broken(one: Broken) -> Iterator[str]:
    from weever_stream.cli.lessons import pair_told
    from weever_stream.drawing import escaped

    since = f" since {_moment(one.why.at)}" if one.why else ""
    yield escaped(f"  - {one.rule.name}{since}")
    if one.why is not None and (told := pair_told(one.why)) is not None:
        yield f"      {told}"
    if one.left:
        more = f" and {len(one.left) - _REFINED} more" if len(one.left) > _REFINED else ""
        yield escaped(f"      what remains of it: {', '.join(held.name for held in one.left[:_REFINED])}{more}")
    yield escaped(f"      `weever violations --rule {one.rule.name}` lists what breaks it; mend the rows, or the rule")


def _moment(at: Moment) -> str:
    from weever_stream.drawing import escaped

    when: Any = datetime.fromisoformat(at.detected_at).astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{when}, batch {at.batch}, at {escaped(at.position)}"
