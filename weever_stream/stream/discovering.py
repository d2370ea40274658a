"""`discover` for a Spark DataFrame that does not fit one machine: the same rules, found by Spark jobs.

    from weever_stream.stream.discovering import discover

    found = discover(spark.read.parquet("s3a://lake/packages"))
    print(found.yaml())

A sample of the rows, as many as one machine may hold, is searched on the driver as a local table is. Its rules are the
candidates. Then, round by round, every pair of rows that could break a candidate meets in some part of the table
(`covering`), a worker runs the kernels of local discovery on the part, and new evidence comes back to be inverted,
until no candidate is broken. Outcomes of pairs are exact, so the rules are those that comparing all pairs would give.

Cost: a round shuffles the columns once for each route. For rules without an equality every block of rows meets every
other, so each row is copied once for each block, of `rows_at_once` / 2 rows. Memory: about `rows_at_once` rows in each
worker and on the driver, and the distinct evidences.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.check.count import Tally
from weever_stream.discover.hydra import Budget, complete, find_rules
from weever_stream.discover.predicates import Options, Space, comparisons_of, may_meet, space_over, usable
from weever_stream.discover.ranking import choose, rank
from weever_stream.discover.result import Discovery, Found, measured
from weever_stream.discover.run import TOP, notes_on, refuse_unknown
from weever_stream.discover.support import add_support, obeying
from weever_stream.discover.telling import in_order
from weever_stream.discover.words import name_of, understand
from weever_stream.errors import DataError
from weever_stream.rules import Op
from weever_stream.rules.writing import free_name
from weever_stream.stream.parted import PartedTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from weever_stream.discover.evidence import Evidence
    from weever_stream.discover.hydra import Progress
    from weever_stream.discover.ranking import Interest
    from weever_stream.rules.model import Predicate
    from weever_stream.rules.types import ColumnType

__all__ = ["ROWS_AT_ONCE", "discover"]

ROWS_AT_ONCE = 250_000
_FEWEST = 100
"""Rows at once that make a sample worth its name."""
_SAMPLED = 0.3
"""The part of the time that the sample may take."""


def discover(
    frame: DataFrame,
    *,
    columns: Sequence[str] | None = None,
    cross: bool = True,
    shared: float = 0.3,
    one_row: bool = False,
    order_text: bool = False,
    max_predicates: int | None = None,
    sample: int | None = None,
    top: int | None = TOP,
    seconds: float | None = None,
    seed: int = 0,
    rows_at_once: int = ROWS_AT_ONCE,
    name: str = "table",
    key: Sequence[str] = (),
    delta: str | None = None,
    progress: Progress | None = None,
) -> Discovery:
    """Finds the rules of a Spark DataFrame; options as `weever_stream.discover.discover` has them.

    `key` and `delta` are written into the rule file: the columns that identify a row, which are not checked here, and
    the path of a Delta table. `rows_at_once` is how many rows the driver, and each Python worker, may hold.
    Raises `DataError`.
    """
    if rows_at_once < _FEWEST:
        raise DataError(f"{rows_at_once} rows at once are too few", hint=f"at least {_FEWEST}")
    refuse_unknown([*(columns or ()), *key], frame.columns)
    for one in frame.columns:
        if frame.columns.count(one) > 1:
            raise DataError(f"the table has more than one column {one}", hint="give each a name of its own")
    say = progress or (lambda phase, done, total: None)
    options = Options(None if columns is None else tuple(columns), order_text, cross, shared, one_row)
    budget, deadline = Budget(seconds), None if seconds is None else time.time() + seconds
    table = PartedTable(frame, frame.columns if columns is None else list(columns), rows_at_once)
    try:
        say("comparing columns", 0, 1)
        some = _space(table, options, seed)
        space = _Whole(**{field.name: getattr(some, field.name) for field in fields(some)}, size=table.rows)
        part = budget.share(_SAMPLED)
        outcome = find_rules(some, most=max_predicates, sample=sample, seed=seed, budget=part, tell=say)
        if table.rows > 1 and space.predicates:
            evidence, weighed = outcome.evidence, outcome.weighed
            completion = _Completion(space, table, evidence, deadline, seed)
            outcome = complete(space, evidence, completion, weighed, max_predicates, budget, say)
        say("ranking", 0, 1)
        order, interest = rank(space, outcome.rules, *outcome.weighed)
        chosen = choose(space, outcome.rules, order, top, *outcome.weighed)
        say("counting", 0, 1)
        found = [*_found(space, table, outcome.rules[chosen], [interest[at] for at in chosen])]
    finally:
        table.close()
    in_time = not outcome.limited and not outcome.undecided and outcome.exact
    used = tuple(space.exact.table.column_names)
    notes = tuple(notes_on(space, outcome, 0))
    rules = in_order(found)
    return Discovery(
        name, table.rows, used, rules, len(order), outcome.exact, in_time, notes, key=tuple(key), delta=delta
    )


@dataclass(frozen=True)
class _Whole(Space):
    """The space of a table of which only a sample is here."""

    size: int = 0

    @property
    def rows(self) -> int:
        """Rows of the whole table."""
        return self.size


class _Completion:
    """Checks candidates against a table in parts. What comes through a round unbroken holds on the whole table."""

    def __init__(self, space: Space, table: PartedTable, evidence: Evidence, deadline: float | None, seed: int) -> None:
        self._space, self._table, self._evidence = space, table, evidence
        self._deadline, self._seed = deadline, seed
        self._checked: set[bytes] = set()

    def open(self, rules: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The rules that have not been checked yet."""
        return rules[np.array([rule.tobytes() not in self._checked for rule in rules], np.bool_)]

    def settle(self, rules: NDArray[np.bool_]) -> None:
        """A round: each rule is broken by evidence afterwards, or it holds; unless the time ended."""
        equalities = [_equal_columns(self._space, np.flatnonzero(rule)) for rule in rules]
        found, late = self._table.evidence(
            self._space.comparisons, equalities, rules, self._evidence.keys, self._deadline, self._seed
        )
        self._evidence.add_keys(found)
        self._checked.update(rule.tobytes() for rule in rules[~late])


def _equal_columns(space: Space, numbers: Iterable[int]) -> frozenset[str]:
    """The columns that must be equal on both rows for a pair to satisfy some predicates."""
    asked = (space.predicates[at] for at in numbers)
    return frozenset(
        p.columns[0].name
        for p in asked
        if p.op is Op.EQ and p.rows == {"t", "s"} and p.columns[0].name == p.columns[1].name
    )


def _space(table: PartedTable, options: Options, seed: int) -> Space:
    """The comparisons of the whole table, over a sample of its rows."""
    empty = {name for name, values in table.values.items() if not values}
    empty |= {name for name, kind in table.schema.items() if kind == "void"}
    types, skipped = usable(table.schema, empty, options)
    table.only(types)
    met: list[tuple[str, str, ColumnType]] = may_meet(types) if options.cross or options.one_row else []
    if met and options.shared > 0:
        shares = table.shared(met)
        met = [one for one in met if shares[one] >= options.shared]
    return space_over(table.sample(seed), comparisons_of(types, met, options), skipped)


def _found(space: Space, table: PartedTable, rules: NDArray[np.bool_], interest: Sequence[Interest]) -> Iterator[Found]:
    """The chosen rules with names, and how many pairs each says something about."""
    taken: set[str] = set()
    chosen = [[int(number) for number in np.flatnonzero(rule)] for rule in rules]
    sayings = [
        understand([space.predicates[number] for number in numbers], lambda name: table.distinct.get(name, 0))
        for numbers in chosen
    ]
    obey = [obeying(space, numbers, saying) for numbers, saying in zip(chosen, sayings, strict=True)]
    # What obeys a rule of one predicate is all pairs with values: known without a look at any of them.
    asked = [at for at, some in enumerate(obey) if len(some) > 1]
    equal = [_equal_columns(space, obey[at]) for at in asked]
    counted = dict(zip(asked, table.counts(space.comparisons, equal, [obey[at] for at in asked]), strict=True))
    for at, numbers in enumerate(chosen):
        words = sayings[at].words()
        bound = space.rule(numbers, free_name(name_of(words), taken))
        made = replace(bound.rule, severity="warning", description=words)
        if at in counted:
            support = add_support(space, numbers, obey[at], 0, int(counted[at]))
        else:
            support = _present(table, space.predicates[numbers[0]])
        yield measured(made, sayings[at], interest[at], support, Tally(0, 0), space.rows)


def _present(table: PartedTable, predicate: Predicate) -> int:
    """The pairs of rows that have both values of a predicate; of one row the rows."""
    left, right = (column.name for column in predicate.columns)
    both = table.rows_with({left, right})
    if len(predicate.rows) == 1:
        return both
    pairs = table.values[left] * table.values[right] - both
    return pairs // 2 if left == right else pairs
