"""`check`: all rules of a file against a whole table, in one pass over shared columns, groups and threads.

    report = check("rules.yaml", "packages.parquet")
    report.exit_code, [(r.rule.name, r.violations) for r in report.results]

Mode `count` counts every violation and lists none. Mode `list` counts too, and lists lazily while the report is read.
Mode `first` stops a rule at its first violation: it checks prefixes of doubling length as they are read, so a clean
table costs about twice a count and a dirty one usually a fraction of reading it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from weever_stream.check.count import Tally, count_rule
from weever_stream.check.delimited import UTF8, known_encoding
from weever_stream.check.exact import ExactCodes
from weever_stream.check.listing import list_rule, rows_of
from weever_stream.check.readers import Wanted, read_batches, read_names, read_table
from weever_stream.check.report import Mode, Report, RuleResult, Violations
from weever_stream.check.rownames import RowNames, name_rows
from weever_stream.check.rowtexts import RowTexts
from weever_stream.check.sources import DataFile, find_files
from weever_stream.detect.intake import are_rows, table_of_rows
from weever_stream.errors import DataError, did_you_mean
from weever_stream.index.casting import typed
from weever_stream.index.plain import plain_table
from weever_stream.rules import BoundRule, Rule, RuleFile, RulesLike, as_key, as_rule_file, schema_of
from weever_stream.rules.model import Op
from weever_stream.rules.reserved import refuse_reserved

if TYPE_CHECKING:
    from weever_stream.rules.types import Schema

__all__ = ["MODES", "Progress", "check", "read_data"]

MODES: tuple[Mode, ...] = ("list", "count", "first")
Progress: TypeAlias = Callable[[str, int, int], None]
"""Told the phase, how much of it is done, and how much there is."""
_CSV_OPTIONS = frozenset({"sep", "delimiter", "quote", "escape", "encoding", "charset", "nullvalue", "multiline"})
"""Options of Spark's CSV reader, in lower case, under which files mean something else."""
_FIRST_PREFIX = 1 << 15


def check(
    rules: RulesLike,
    data: Any = None,
    *,
    mode: Mode = "list",
    key: str | Sequence[str] | None = None,
    limit: int | None = None,
    null_values: Sequence[str] = (),
    encoding: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Checks rules against data: a path, paths, a list of dicts, an Arrow table, a frame; none: the file's `source`.

    `rules`: a rule file (path or `RuleFile`), or rules as objects or expressions, one or a list. `key`: the column or
    columns that name a row, in place of the file's. `limit` is how many violations are listed per rule (None: all;
    counts stay exact), `encoding` that of text in CSV files (None: UTF-8). Raises `RuleError` and `DataError`.
    """
    if mode not in MODES:
        raise DataError(f"{mode!r} is not a mode of check", hint=did_you_mean(str(mode), MODES) or ", ".join(MODES))
    file = as_rule_file(rules)
    if key is not None:
        file = replace(file, key=as_key(key))
    refuse_reserved(file.key)
    tell = progress or (lambda phase, done, total: None)
    tell("reading", 0, 1)
    source = _Source.of(data, file, tuple(null_values), threads, known_encoding(encoding))
    run = _Run(file, source, threads or _cores(), tell)
    return run.first() if mode == "first" else run.whole(mode, limit)


def read_data(file: RuleFile, data: Any = None) -> tuple[pa.Table, Schema]:
    """The columns that a file's rules read, of the data or of its `source`, and what rules are bound to."""
    source = _Source.of(data, file, (), None)
    table = source.read()
    return table, source.schema(table)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Source:
    """Where the rows come from: files, or a table that is in memory already."""

    files: tuple[DataFile, ...]
    table: pa.Table | None
    wanted: Wanted
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, data: Any, file: RuleFile, null_values: tuple[str, ...], threads: int | None, encoding: str = UTF8
    ) -> _Source:
        columns = frozenset(name for rule in file.rules for name in rule.columns) | frozenset(file.key)
        wanted = Wanted(columns, file.columns, null_values, threads != 1, encoding)
        kind = None
        if data is None:
            data, kind = _paths_of_source(file)
        if are_rows(data):
            names = tuple(dict.fromkeys(str(name) for row in data for name in row))
            return cls((), table_of_rows(data, columns), wanted, names)
        if isinstance(data, (str, Path)) or (isinstance(data, (list, tuple)) and data):
            files = find_files([data] if isinstance(data, (str, Path)) else list(data), kind)
            return cls(tuple(files), None, wanted, tuple(read_names(files, encoding)))
        table = _as_table(data)
        return cls((), table, wanted, tuple(table.column_names))

    def read(self) -> pa.Table:
        """Everything at once."""
        return read_table(self.files, self.wanted) if self.table is None else self._given(self.table)

    def schema(self, table: pa.Table) -> Schema:
        """What was read, with its types. Columns that no rule reads are known by name only: enough to hint at them."""
        return {**dict.fromkeys(self.names, "of no rule"), **schema_of(table.schema)}

    def prefixes(self) -> Iterator[pa.Table]:
        """What can be read of the table, longer and longer: each at least twice the one before, the last one whole."""
        batches = (
            read_batches(self.files, self.wanted, _FIRST_PREFIX)
            if self.table is None
            else (self.table.slice(at, _FIRST_PREFIX) for at in range(0, max(1, self.table.num_rows), _FIRST_PREFIX))
        )
        pieces: list[pa.Table] = []
        rows, due, told = 0, _FIRST_PREFIX, -1
        for piece in batches:
            pieces.append(piece if self.table is None else self._given(piece, rows))
            rows += piece.num_rows
            if rows >= due:
                yield pa.concat_tables(pieces)
                due, told = 2 * rows, rows
        if rows != told:
            yield pa.concat_tables(pieces)

    def _given(self, table: pa.Table, before: int = 0) -> pa.Table:
        columns = [name for name in dict.fromkeys(table.column_names) if name in self.wanted.columns]
        for name in columns:
            if table.column_names.count(name) > 1:
                raise DataError(f"the table has more than one column {name}", hint="give each a name of its own")
        return typed(plain_table(table.select(columns), "the table", before), self.wanted.types, "the table", before)


def _paths_of_source(file: RuleFile) -> tuple[Any, str | None]:
    given = (file.resolve(os.environ).source or {}) if file.source else {}
    path = given.get("path") or given.get("paths")
    if not path and given.get("kind"):
        raise DataError(
            f"the source of kind {given['kind']} has no `path:` that check can read",
            hint="name the data after the rule file: a table that is at rest",
        )
    if not path:
        raise DataError("there is no data to check", hint="name it after the rule file, or under `source:` in it")
    if unread := sorted(name for name in given.get("options") or {} if name.lower() in _CSV_OPTIONS):
        raise DataError(
            f"check does not read CSV by the source's options: {', '.join(unread)}",
            hint="name the files after the rule file. Quotes are read by RFC 4180, the separator follows the name of "
            "the file (.csv or .tsv), and --encoding names another encoding",
        )
    found = [str(one) for one in path] if isinstance(path, (list, tuple)) else str(path)
    return found, str(given["kind"]) if "kind" in given else None


def _as_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    try:
        return pa.table(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"{type(data).__name__} is not data that can be checked: {str(error)[:120]}",
            hint="give a path, a list of dicts, an Arrow table, or a pandas or Polars frame",
        ) from None


class _Run:
    """One check: the rules of a file over one source."""

    def __init__(self, file: RuleFile, source: _Source, threads: int, tell: Progress) -> None:
        self.file, self.source, self.threads, self.tell = file, source, threads, tell

    def whole(self, mode: Mode, limit: int | None) -> Report:
        """Counts every rule over the whole table; lists when the report is read."""
        table = self.source.read()
        bound, codes, names = self._prepared(table, self.file.rules)
        counted = self._counted(bound, codes, keep=mode == "list" and limit != 0)

        def pieces() -> Iterator[Violations]:
            for one, (tally, _) in zip(bound, counted, strict=True):
                involved = tally.involved if limit is None and tally.violations > tally.rows_involved else None
                texts = RowTexts(names, one.rule.columns, None if involved is None else rows_of(involved))
                for pairs in list_rule(one, codes, names, tally, limit):
                    yield Violations(one.rule, pairs, names, texts)

        results = tuple(
            RuleResult(one.rule, tally.violations, tally.rows_involved, seconds)
            for one, (tally, seconds) in zip(bound, counted, strict=True)
        )
        listed = pieces if mode == "list" else lambda: iter(())
        return Report(self.file.table, table.num_rows, mode, results, limit, listed)

    def first(self) -> Report:
        """The first violation of each rule, from the shortest prefix that has one."""
        pending = {rule.name: rule for rule in self.file.rules}
        found: dict[str, Violations] = {}
        seconds = dict.fromkeys(pending, 0.0)
        rows = 0
        for prefix in self.source.prefixes():
            rows = prefix.num_rows
            bound, codes, names = self._prepared(prefix, tuple(pending.values()))
            for one, (tally, took) in zip(bound, self._counted(bound, codes, keep=True), strict=True):
                seconds[one.rule.name] += took
                if tally.violations:
                    pairs = next(list_rule(one, codes, names, tally, 1))
                    found[one.rule.name] = Violations(one.rule, pairs, names, RowTexts(names, one.rule.columns))
                    del pending[one.rule.name]
            if not pending:
                break
        results = tuple(RuleResult(rule, int(rule.name in found), None, seconds[rule.name]) for rule in self.file.rules)
        pieces = [found[rule.name] for rule in self.file.rules if rule.name in found]
        return Report(self.file.table, rows, "first", results, 1, lambda: iter(pieces))

    def _prepared(self, table: pa.Table, rules: Sequence[Rule]) -> tuple[tuple[BoundRule, ...], ExactCodes, RowNames]:
        self.tell("encoding", 0, 1)
        bound = replace(self.file, rules=tuple(rules)).bind(self.source.schema(table))
        return bound, ExactCodes(table, bound), name_rows(table, self.file.key)

    def _counted(self, bound: Sequence[BoundRule], codes: ExactCodes, keep: bool) -> list[tuple[Tally, float]]:
        """Every rule's counts and time. Rules with fewer equalities go first: others build on their work."""
        done, running = 0, dict[str, None]()
        telling = Lock()
        if any(sum(pair.op.is_order for pair in one.pairs) > 1 for one in bound):
            import_module("weever_stream.check.sweep").load()

        def count(one: BoundRule) -> tuple[Tally, float]:
            nonlocal done
            began = perf_counter()
            with telling:
                running[one.rule.name] = None
                self.tell(f"rule {next(iter(running))}", done, len(bound))
            tally = count_rule(one, codes, keep)
            with telling:
                done += 1
                del running[one.rule.name]
                # The bar names the rule that has been counted longest, not the one that is done.
                self.tell(f"rule {next(iter(running), one.rule.name)}", done, len(bound))
            return tally, perf_counter() - began

        order = sorted(range(len(bound)), key=lambda at: sum(pair.op is Op.EQ for pair in bound[at].pairs))
        if self.threads == 1 or len(bound) == 1:
            found = [count(bound[at]) for at in order]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                found = list(pool.map(count, (bound[at] for at in order)))
        return [outcome for _, outcome in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]
