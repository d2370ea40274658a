"""What a discovery returns: rules with their measurements, and how far they can be trusted to be all."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weever_stream.discover.ranking import LEAST, MOST_ROWS, is_tested
from weever_stream.discover.words import Saying, understand
from weever_stream.rules import write_rule
from weever_stream.rules.yamltext import dump

if TYPE_CHECKING:
    from weever_stream.check.count import Tally
    from weever_stream.discover.ranking import Interest
    from weever_stream.rules import Rule

__all__ = ["Discovery", "Found", "measured"]


@dataclass(frozen=True)
class Found:
    """A rule that was found."""

    rule: Rule
    words: str
    interest: Interest
    support: int
    """Pairs that test the rule: they satisfy all its predicates but one, and have values for that one (`support`)."""
    violations: int
    rows_involved: int
    error: float
    """Violating ordered pairs, as a share of all ordered pairs of rows."""
    examples: tuple[tuple[int, int | None], ...] = ()
    """Some violations, as row numbers from 1."""
    chance: int | None = None
    """About how many violations there would be if the predicates had nothing to do with each other (`ranking`).

    None for a rule of one predicate.
    """
    tested: bool = False
    """Whether the data tests the rule, according to the numbers above."""
    estimated: bool = False
    """Whether the support is estimated from a sample, because there was no time to count it."""
    values: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """For each example, for each of its rows: the values of `columns` as text, cut."""
    understood: Saying | None = None

    @property
    def saying(self) -> Saying:
        """What the rule says, in parts."""
        return self.understood or understand(self.rule.predicates)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rule reads."""
        return tuple(dict.fromkeys(column.name for p in self.rule.predicates for column in p.columns))

    def as_json(self) -> dict[str, Any]:
        """Its object under `rules`."""
        return {
            "name": self.rule.name,
            "kind": self.saying.kind,
            "words": self.words,
            "deny": write_rule(self.rule),
            "tested": self.tested,
            "support": self.support,
            "violations": self.violations,
            "chance": self.chance,
            "rows_involved": self.rows_involved,
            "error": self.error,
            "score": round(self.interest.score, 4),
            "succinctness": round(self.interest.succinctness, 4),
            "coverage": round(self.interest.coverage, 4),
            "surprise": round(self.interest.surprise, 4),
            "examples": [list(pair) for pair in self.examples],
        }


def measured(rule: Rule, saying: Saying, interest: Interest, support: int, tally: Tally, rows: int) -> Found:
    """A rule of a table of this many rows with its measurements, and whether those say that it is tested."""
    violations, involved = tally.violations, tally.rows_involved
    each = 2 if rule.symmetric else rows - 1 if rule.one_row else 1
    chance = None if interest.chance is None else min(support, round(interest.chance))
    if chance is None:
        tested = support >= LEAST and involved <= MOST_ROWS * rows
    else:
        tested = is_tested(violations, chance)
    error = violations * each / max(1, rows * (rows - 1))
    words = rule.description or saying.words()
    return Found(
        rule, words, interest, support, violations, involved, error, chance=chance, tested=tested, understood=saying
    )


@dataclass(frozen=True, repr=False)
class Discovery:
    """What was found, and how far it can be trusted to be all."""

    table: str
    rows: int
    columns: tuple[str, ...]
    rules: tuple[Found, ...]
    """The best, as many as were asked for; those that are not tested come last."""
    total: int
    """All minimal rules that were found."""
    exact: bool
    """Whether these are all minimal rules of the space."""
    in_time: bool = True
    """Whether no budget ended the work."""
    notes: tuple[str, ...] = field(default=())
    """What was left out, and why."""
    pairs: int | None = None
    """Pairs of rows that were looked at one by one, where that is known."""
    key: tuple[str, ...] = ()
    """The columns that identify a row, if there are such."""
    delta: str | None = None
    """The path or URI of the Delta table that was read, if it was one."""

    def __repr__(self) -> str:
        how = "exact" if self.exact else "not all were found"
        return f"<Discovery of {self.table}: {len(self.rules)} of {self.total} minimal rules, {how}>"

    def __str__(self) -> str:
        from weever_stream.discover.telling import text

        return text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if cycle else str(self))

    def _repr_html_(self) -> str:
        from weever_stream.discover.report import fragment

        return fragment(self)

    def html(self) -> str:
        """A report with a picture of how the columns relate: one page that needs nothing else."""
        from weever_stream.discover.report import page

        return page(self)

    def yaml(self) -> str:
        """The rules as a rule file; of a Delta table with a key as a job file that `weever run` runs."""
        head: dict[str, Any] = {"table": self.table}
        if self.key:
            head["key"] = self.key[0] if len(self.key) == 1 else list(self.key)
        if self.delta is not None:
            head["source"] = {"kind": "delta", "path": self.delta}
            head["state"] = {"checkpoint": self.delta.rstrip("/") + "_checkpoint"}
        items = [
            {
                "name": one.rule.name,
                "deny": write_rule(one.rule),
                "severity": one.rule.severity,
                "description": one.words[0].upper() + one.words[1:] + ".",
            }
            for one in self.rules
        ]
        return dump({**head, "rules": items})

    @property
    def missing(self) -> tuple[str, ...]:
        """The fields that the rule file needs before `weever run` runs it."""
        return (*(() if self.key else ("key",)), *(() if self.delta is not None else ("source", "state")))

    def write(self, path: str | Path) -> None:
        """Writes the rule file."""
        Path(path).write_text(self.yaml(), encoding="utf-8")

    def as_json(self) -> dict[str, Any]:
        """All of it, for a program."""
        return {
            "version": 1,
            "table": self.table,
            "rows": self.rows,
            "columns": list(self.columns),
            "key": list(self.key),
            "pairs": self.pairs,
            "found": self.total,
            "exact": self.exact,
            "in_time": self.in_time,
            "notes": list(self.notes),
            "rules": [one.as_json() for one in self.rules],
        }
