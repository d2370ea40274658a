"""What people have decided about learned rules: adopted into the rule file, or rejected and not proposed again.

Learning never changes the rules in force: a rule comes into a file only here, because a person said so, and the file is
read anew each time, so that what somebody else has written in the meantime stays. Decisions are noted beside what was
learned, in a note of their own that only this writes, and outlive it. Cost: the rule file is read and written once a
decision.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weever_stream.errors import OutputError, RuleError, StateError, did_you_mean
from weever_stream.learn.about import ABOUT, About
from weever_stream.learn.holding import HOLDING, Holding, Moment
from weever_stream.learn.proposals import Broken, Proposal, broken, proposed
from weever_stream.rules.adding import add_rule
from weever_stream.rules.file import content_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from weever_stream.learn.holding import Held
    from weever_stream.rules.model import Rule
    from weever_stream.state.notes import Notes

__all__ = ["DECISIONS", "Decisions", "Review", "adopt", "review_of"]

DECISIONS = "decisions.json"
_FORMAT = 1
_PROGRESS = "progress.json"
"""What every batch notes, whether it changes rules or not."""


@dataclass(frozen=True)
class Decided:
    """One decision."""

    name: str
    fingerprint: str
    deny: str
    at: str
    """When, in UTC, as ISO writes it."""


@dataclass(frozen=True)
class Decisions:
    """The note."""

    adopted: tuple[Decided, ...] = ()
    rejected: tuple[Decided, ...] = ()

    @classmethod
    def read(cls, notes: Notes) -> Decisions:
        """What has been decided so far."""
        noted = notes.read(DECISIONS)
        if noted is None:
            return cls()
        try:
            if noted["format"] != _FORMAT:
                raise ValueError
            parts = ("adopted", "rejected")
            return cls(*(tuple(Decided(**one) for one in noted[part]) for part in parts))
        except (KeyError, TypeError, ValueError):
            raise StateError(
                f"the note {DECISIONS} is damaged, or of a later release",
                hint="restore it from a copy, or delete it: what was rejected is then proposed again",
            ) from None

    def write(self, notes: Notes) -> None:
        """Notes them."""
        told = {part: [asdict(one) for one in getattr(self, part)] for part in ("adopted", "rejected")}
        notes.write(DECISIONS, {"format": _FORMAT, **told})

    def adopting(self, held: Held, at: datetime) -> Decisions:
        """With a rule adopted."""
        others = tuple(one for one in self.rejected if one.fingerprint != held.fingerprint)
        return Decisions((*self.adopted, _decided(held, at)), others)

    def rejecting(self, held: Held, at: datetime) -> Decisions:
        """With a rule rejected."""
        others = tuple(one for one in self.rejected if one.fingerprint != held.fingerprint)
        return Decisions(self.adopted, (*others, _decided(held, at)))

    def reconsidering(self, name: str) -> Decisions:
        """With a rejection taken back."""
        kept = tuple(one for one in self.rejected if name not in (one.name, one.fingerprint))
        if len(kept) == len(self.rejected):
            known = [one.name for one in self.rejected]
            hint = did_you_mean(name, known) or ("rejected are " + ", ".join(known) if known else "no rule is rejected")
            raise RuleError(f"no rule {name} was rejected", hint=hint)
        return Decisions(self.adopted, kept)


def _decided(held: Held, at: datetime) -> Decided:
    return Decided(held.name, held.fingerprint, held.deny, at.isoformat())


@dataclass(frozen=True)
class Review:
    """What a person should look at."""

    holding: Holding
    proposals: tuple[Proposal, ...]
    """Best first."""
    broken: tuple[Broken, ...]
    decisions: Decisions

    def held(self, name: str) -> Held:
        """The rule of a name or fingerprint that holds, proposed or not. Raises `RuleError` where there is none."""
        found = [one for one in self.holding.rules if name in (one.name, one.fingerprint)]
        if not found:
            known = [one.held.name for one in self.proposals]
            gone = any(name in (one.name, one.fingerprint) for one in self.holding.ceased)
            hint = "it does not hold any more" if gone else did_you_mean(name, known)
            raise RuleError(f"no rule {name} was learned that holds now", hint=hint or "--list shows those that do")
        return found[0]

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "version": 1,
            "table": self.holding.table,
            "rows": self.holding.rows,
            "at": vars(self.holding.at),
            "holding": len(self.holding.rules),
            "proposed": [one.to_json() for one in self.proposals],
            "broken": [one.to_json() for one in self.broken],
            "rejected": [vars(one) for one in self.decisions.rejected],
            "adopted": [vars(one) for one in self.decisions.adopted],
        }


def review_of(notes: Notes, rules: Sequence[Rule], where: str) -> Review:
    """What was learned, against the rules in force. Raises `StateError` where nothing was learned yet."""
    noted, about = notes.read(HOLDING), notes.read(ABOUT)
    if noted is None or about is None:
        raise StateError(
            f"nothing was learned yet under {where}",
            hint="`weever learn job.yaml --once` learns from what is there; `weever run` does it beside the job",
        )
    holding, decisions = _now(Holding.of_json(noted, where), notes), Decisions.read(notes)
    known = About.of_json(about, where).known(holding.columns)
    rejected = {one.fingerprint for one in decisions.rejected}
    return Review(
        holding, tuple(proposed(holding, rules, known, rejected)), tuple(broken(holding, rules, known)), decisions
    )


def _now(holding: Holding, notes: Notes) -> Holding:
    """The note as of the last batch: it is not written again by batches that change no rule."""
    done = notes.read(_PROGRESS)
    if done is None or int(done["batch"]) < holding.at.batch:
        return holding
    at = Moment(int(done["batch"]), str(done["position"]), str(done["detected_at"]))
    return replace(holding, rows=int(done["rows"]), at=at)


def adopt(path: Path, rule: Rule) -> None:
    """Puts a rule into the rule file as it is now. Raises `RuleError` where that cannot be, and changes nothing."""
    content = content_of(path)
    text = add_rule(content, rule, path=str(path))
    if content_of(path) != content:
        raise RuleError(f"{path} was changed just now by somebody else", hint="look at it, and adopt the rule again")
    _replaced(path, [text.encode("utf-8")])


def _replaced(path: Path, parts: Iterable[bytes]) -> None:
    """A file in the place of another, whole or not at all, with its rights. A link stays a link."""
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        try:
            with beside.open("wb") as out:
                out.writelines(parts)
                os.fchmod(out.fileno(), target.stat().st_mode & 0o7777)
                out.flush()
                os.fsync(out.fileno())
            beside.replace(target)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}", hint="check its rights and space"
        ) from None
