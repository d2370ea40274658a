"""`discover`: the rules that a table obeys, best first, each with the counts that `check` would tell.

    found = discover("packages.parquet")
    for one in found.rules:
        print(one.words, one.violations)
    found.write("rules.yaml")
    found                       # in a notebook: a report with a picture; print(found) for text

Every rule that is returned has been counted over the whole table: with an `error` of 0 it has no violation.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weever_stream.check.count import Tally, count_rule
from weever_stream.check.delimited import known_encoding
from weever_stream.check.listing import list_rule
from weever_stream.check.readers import Wanted, read_names, read_table
from weever_stream.check.rownames import name_rows
from weever_stream.check.sources import find_files
from weever_stream.detect.identity import python_values
from weever_stream.detect.intake import are_rows, table_of_rows
from weever_stream.discover.approximate import find_approximate
from weever_stream.discover.budget import Budget, bytes_of
from weever_stream.discover.hydra import Outcome, find_rules
from weever_stream.discover.keys import find_key
from weever_stream.discover.predicates import Options, space_of
from weever_stream.discover.ranking import Interest, choose, rank
from weever_stream.discover.result import Discovery, Found, measured
from weever_stream.discover.support import count_support, estimate_support
from weever_stream.discover.telling import in_order
from weever_stream.discover.words import name_of, understand
from weever_stream.drawing import from_difference, printable
from weever_stream.errors import DataError, did_you_mean, the_columns
from weever_stream.index.plain import plain_table
from weever_stream.rules import as_key
from weever_stream.rules.reserved import refuse_reserved
from weever_stream.rules.writing import free_name
from weever_stream.storage import locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weever_stream.check.rownames import RowNames
    from weever_stream.discover.hydra import Progress
    from weever_stream.discover.predicates import Space

__all__ = ["TOP", "Discovery", "Found", "discover", "notes_on", "refuse_unknown"]

TOP = 20
_EXAMPLES = 3
_WEIGHING = 1e-3
"""Seconds that it takes to weigh a rule, at most."""
_TO_COUNT = 1.0
"""Seconds that there are for counting the rules that were chosen, although the time has ended."""
_WEIGHED = 4096
"""Distinct evidences that an estimate looks at."""


def discover(
    data: Any,
    *,
    columns: str | Sequence[str] | None = None,
    key: str | Sequence[str] | None = None,
    cross: bool = True,
    shared: float = 0.3,
    one_row: bool = False,
    order_text: bool = False,
    max_predicates: int | None = None,
    error: float = 0.0,
    error_rows: float | None = None,
    sample: int | None = None,
    top: int | None = TOP,
    seconds: float | None = None,
    memory: int | str | None = None,
    seed: int = 0,
    null_values: Sequence[str] = (),
    encoding: str | None = None,
    progress: Progress | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Discovery:
    """Finds rules in data: a path, paths, a list of dicts, an Arrow table, or a pandas or Polars frame.

    `key` names the columns that identify a row, for the rule file; by default the first column that does.
    `columns` limits the table, `max_predicates` the length of a rule, `top` how many are returned (None: all; else none
    that better ones imply). `seconds` and `memory` are budgets: what was found when one ends is returned, with a note.
    Memory is as "2GB" or a number of bytes, for what is held besides the table; by default a quarter of the machine's.
    `error` above 0 finds rules that may be violated by that share of all pairs of rows, `error_rows` those whose
    violations involve no more than that share of the rows; both together both. Such rules come with examples of their
    violations. `cross`, `shared`, `one_row` and `order_text` shape the space of predicates (see `predicates.Options`).
    `stopped` is asked about ten times a second: once it is true, the work ends as if the time had. Raises `DataError`.
    """
    for share in (error, error_rows or 0.0):
        if not 0 <= share < 1:
            raise DataError(f"an error of {share} is no share", hint="0 for exact rules, 0.001 for one in a thousand")
    approximate = bool(error or error_rows)
    key, columns = as_key(key), None if columns is None else as_key(columns)
    say = progress or (lambda phase, done, total: None)
    say("reading", 0, 1)
    budget = Budget(seconds, memory=None if memory is None else bytes_of(memory), stopped=stopped)
    wanted = None if columns is None else [*dict.fromkeys([*columns, *key])]
    name, table, delta = _table(data, wanted, tuple(null_values), known_encoding(encoding))
    refuse_unknown(key, table.column_names)
    named = find_key(table, key)
    say("comparing columns", 0, 1)
    options = Options(columns, order_text, cross, shared, one_row)
    space = space_of(table, options, budget)
    # The rest of the time is for ranking and counting.
    searching = budget.share(0.85)
    if approximate:
        outcome = find_approximate(
            space, error, error_rows, most=max_predicates, sample=sample, seed=seed, budget=searching, tell=say
        )
    else:
        outcome = find_rules(space, most=max_predicates, sample=sample, seed=seed, budget=searching, tell=say)
    say("ranking", 0, 1)
    outcomes, pairs = outcome.weighed
    # Short rules come first. Of many the others have to wait where there is no time to weigh them.
    weighed = len(outcome.rules) if top is None else max(top, 200, int(min(budget.left(), 1e6) / _WEIGHING))
    order, interest = rank(space, outcome.rules[:weighed], outcomes, pairs)
    chosen = choose(space, outcome.rules, order, top, outcomes, pairs)
    found = [*_counted(space, outcome, chosen, interest, say, budget.at_least(_TO_COUNT), approximate)]
    notes = [*notes_on(space, outcome, approximate)]
    if uncounted := sum(one.estimated for one in found):
        notes.append(f"the support of {uncounted} of the rules is estimated from a sample of the pairs: no time")
    if len(found) < len(chosen):
        notes.append(f"{len(chosen) - len(found)} of the best rules were not counted and left out: no time")
    used = tuple(space.exact.table.column_names)
    in_time = not outcome.limited and not outcome.undecided and (outcome.exact or approximate)
    in_time = in_time and not space.unmet and len(found) == len(chosen)
    exact = outcome.exact and not space.unmet
    pairs_seen = outcome.evidence.pairs
    rules = in_order(found)
    return Discovery(
        name, space.rows, used, rules, len(outcome.rules), exact, in_time, tuple(notes), pairs_seen, named, delta
    )


def _table(
    data: Any, columns: Sequence[str] | None, null_values: tuple[str, ...], encoding: str
) -> tuple[str, pa.Table, str | None]:
    """The data, a name for it, and where it is if it is a Delta table."""
    paths = [data] if isinstance(data, (str, Path)) else data
    if isinstance(paths, (list, tuple)) and paths and all(isinstance(one, (str, Path)) for one in paths):
        files = find_files(list(paths))
        names = read_names(files, encoding)
        refuse_unknown(columns, names)
        wanted = Wanted(frozenset(names if columns is None else columns), null_values=null_values, encoding=encoding)
        name = locate(paths[0]).path.rsplit("/", 1)[-1].split(".")[0] or "table"
        delta = str(paths[0]) if len(paths) == 1 and [one.format for one in files] == ["delta"] else None
        return name, read_table(files, wanted), delta
    try:
        rows = table_of_rows(data) if are_rows(data) else data
        table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"{type(data).__name__} is not data in which rules can be found: {str(error)[:120]}",
            hint="give a path, a list of dicts, an Arrow table, or a pandas or Polars frame",
        ) from None
    refuse_unknown(columns, table.column_names)
    for one in table.column_names:
        if table.column_names.count(one) > 1:
            raise DataError(f"the table has more than one column {one}", hint="give each a name of its own")
    return "table", plain_table(table if columns is None else table.select(list(columns)), "the table"), None


def refuse_unknown(columns: Sequence[str] | None, names: Sequence[str]) -> None:
    """Raises `DataError` for a column that a table does not have, or that no table may have."""
    refuse_reserved(columns or names)
    for column in columns or ():
        if column not in names:
            hint = did_you_mean(column, names) or the_columns(names)
            raise DataError(f"there is no column {column}", hint=hint)


def _counted(
    space: Space,
    outcome: Outcome,
    chosen: Sequence[int],
    interest: Sequence[Interest],
    say: Progress,
    budget: Budget,
    approximate: bool,
) -> Iterator[Found]:
    """The chosen rules with names and exact counts. Where time has ended, those that hold come with what is known."""
    taken: set[str] = set()
    sizes = _distinct_values(space)
    rows = name_rows(space.exact.table, ())
    outcomes, weights = outcome.weighed
    step = max(1, len(outcomes) // _WEIGHED)
    for at, rule in enumerate(outcome.rules[chosen]):
        in_time = not at or budget.go_on()
        if approximate and not in_time:
            return
        say("counting", at, len(chosen))
        numbers = [int(number) for number in np.flatnonzero(rule)]
        saying = understand([space.predicates[number] for number in numbers], lambda name: sizes.get(name, 0))
        words = saying.words()
        bound = space.rule(numbers, free_name(name_of(words), taken))
        made = replace(bound.rule, severity="warning", description=words)
        tally = count_rule(bound, space.exact) if in_time else Tally(0, 0)
        if in_time:
            support = count_support(space, numbers, saying, tally.violations)
        else:
            support = estimate_support(space, numbers, saying, outcomes[::step], weights[::step], space.rows)
        examples: list[tuple[int, int | None]] = []
        for pairs in list_rule(bound, space.exact, rows, tally, _EXAMPLES):
            right = [None] * len(pairs) if pairs.right is None else (pairs.right + 1).tolist()
            examples += zip((pairs.left + 1).tolist(), right, strict=True)
        found = measured(made, saying, interest[chosen[at]], support, tally, space.rows)
        shown = tuple(examples[:_EXAMPLES])
        values = tuple(_shown(rows, found.columns, pair) for pair in shown)
        yield replace(found, examples=shown, values=values, estimated=not in_time)


def _shown(rows: RowNames, columns: Sequence[str], pair: tuple[int, int | None]) -> tuple[tuple[str, ...], ...]:
    """The values of a pair of rows that a rule reads, as text that is short enough to look at."""
    at = np.array([number - 1 for number in pair if number is not None], np.int64)
    taken = rows.rows(at, columns)
    shown = []
    for values in (python_values(taken[name]) for name in columns):
        texts = tuple(map(printable, values))
        if len(set(texts)) < len(values) and values[0] != values[-1]:
            texts = from_difference(values[0], values[-1])
        shown.append(texts)
    return tuple(zip(*shown, strict=True))


def _distinct_values(space: Space) -> dict[str, int]:
    return {
        one.left.name: len(np.unique(space.codes[space.programs[at, 0]])) for at, one in enumerate(space.comparisons)
    }


def notes_on(space: Space, outcome: Outcome, error: float) -> Iterator[str]:
    """What a person must know of what was not found."""
    if space.rows < 2:
        yield f"the table has {space.rows} row{'s' * (space.rows != 1)}: rules are about two"
    for column, why in space.skipped.items():
        yield f"column {column} was left out: {why}"
    if space.unmet:
        yield f"{space.unmet:,} pairs of columns were not compared with each other: no time or no room for so many"
    if outcome.full:
        yield f"there was no room for more than {outcome.evidence.distinct:,} kinds of pairs of rows (memory, time)"
    if outcome.limited and outcome.most is not None:
        many = f"of more than {outcome.most} predicate{'s' * (outcome.most != 1)} " if outcome.most else ""
        yield f"rules {many}were not all looked for: no time or no room"
    if outcome.undecided:
        yield f"{outcome.undecided:,} candidates hold on the sample and were left out: no time to check them"
    elif not outcome.exact and not error:
        yield "not every rule was found: no time or no room"
    if error and not outcome.complete:
        yield "candidates come from a sample of the pairs, with room for chance; what is told of them is counted"
